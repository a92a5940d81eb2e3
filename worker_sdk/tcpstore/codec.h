/* SPDX-License-Identifier: Apache-2.0 */
/* The wire protocol of PyTorch's TCPStore, both ways: pure functions of bytes.
 *
 * Everything is little-endian: lengths and counts are u64, numbers i64, a blob is a length and
 * its bytes. There is no message length, no request id and no error reply; replies come in the
 * order of the requests. The query byte has two numberings and no version field:
 *
 *     D0   torch <= 2.0   begins with a query
 *     D2   torch >= 2.2   begins with VALIDATE: 00 CE F7 85 3C
 *
 * Nightlies of 2023, perhaps 2.1, had a third one, which cannot be distinguished from D0: it is not supported.
 *
 * Both directions work on a stream without copying or allocating: a scan walks from length
 * field to length field, remembers where it stopped, and says how many bytes must be there
 * before it can continue. Each byte is looked at once, whatever the pieces; caps are checked when
 * a length is read, before its bytes have come. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"

enum ct_tcpstore_dialect {
    CT_TCPSTORE_UNKNOWN, /* not enough bytes to decide */
    CT_TCPSTORE_D0,
    CT_TCPSTORE_D2,
};

/* Values are D2's bytes; WATCH_KEY exists in D0 only and has a number of our own. */
enum ct_tcpstore_query {
    CT_TCPSTORE_VALIDATE = 0x00,
    CT_TCPSTORE_SET = 0x01,
    CT_TCPSTORE_COMPARE_SET = 0x02,
    CT_TCPSTORE_GET = 0x03,
    CT_TCPSTORE_ADD = 0x04,
    CT_TCPSTORE_CHECK = 0x05,
    CT_TCPSTORE_WAIT = 0x06,
    CT_TCPSTORE_GETNUMKEYS = 0x07,
    CT_TCPSTORE_DELETE_KEY = 0x08,
    CT_TCPSTORE_APPEND = 0x09,
    CT_TCPSTORE_MULTI_GET = 0x0a,
    CT_TCPSTORE_MULTI_SET = 0x0b,
    CT_TCPSTORE_CANCEL_WAIT = 0x0c,
    CT_TCPSTORE_PING = 0x0d,
    CT_TCPSTORE_QUEUE_PUSH = 0x0e,
    CT_TCPSTORE_QUEUE_POP = 0x0f,
    CT_TCPSTORE_QUEUE_LEN = 0x10,
    CT_TCPSTORE_LIST_KEYS = 0x11,
    CT_TCPSTORE_BARRIER = 0x12,
    CT_TCPSTORE_WATCH_KEY = 0x13,
    CT_TCPSTORE_QUERIES,
};

enum {
    CT_TCPSTORE_MAGIC = 0x3c85f7ce,
    /* The caps of PyTorch's libuv server. */
    CT_TCPSTORE_KEY_MAX_BYTES = 8192,
    CT_TCPSTORE_VALUE_MAX_BYTES = 8 << 20,
    CT_TCPSTORE_KEYS_MAX = 131072, /* in one CHECK, WAIT, MULTI_GET, MULTI_SET */
    /* A whole request (PyTorch has no such cap): a MULTI_SET of 8 x 8 MiB fits. */
    CT_TCPSTORE_REQUEST_MAX_BYTES = 72 << 20,
    CT_TCPSTORE_READY = 0,         /* CHECK, and WAIT and BARRIER when released */
    CT_TCPSTORE_NOT_READY = 1,     /* CHECK */
    CT_TCPSTORE_WAIT_CANCELED = 1, /* CANCEL_WAIT */
    CT_TCPSTORE_WATCHING = 3,      /* WATCH_KEY */
};

struct ct_tcpstore_blob {
    const uint8_t *data; /* borrowed */
    size_t length;
};

/* A walk over one message that may still be arriving. Zero it before each message. */
struct ct_tcpstore_scan {
    size_t
        need; /* bytes that must be there for the next step, counted from the start */
    size_t offset; /* of the next field */
    uint64_t left; /* blobs still to come */
    uint32_t seen; /* blobs that came */
    uint8_t query; /* enum ct_tcpstore_query, valid once offset > 0 */
    bool is_begun; /* replies: the head was read */
    size_t first;  /* offset of the first blob's length field */
};

/* ---- Requests, as a server reads them --------------------------------------------------- */

/* Detects the dialect from the first bytes of a connection. D2 consumes 5 bytes (VALIDATE), the
 * others none. Returns the bytes consumed and sets *out, which stays UNKNOWN while more bytes are
 * needed; -EPROTO: no dialect begins like this. */
int ct_tcpstore_sniff(const uint8_t *data, size_t length,
                      enum ct_tcpstore_dialect *out);

/* Returns the length of the request at data once all of it has arrived; 0: not complete (scan->need
 * is how many bytes are needed; the next call gets the same bytes and more after them); -EPROTO:
 * unknown query; -EMSGSIZE above a cap. */
int ct_tcpstore_scan_request(struct ct_tcpstore_scan *scan,
                             enum ct_tcpstore_dialect dialect, const uint8_t *data,
                             size_t length);

struct ct_tcpstore_request {
    enum ct_tcpstore_query query;
    struct ct_tcpstore_blob key;
    struct ct_tcpstore_blob
        value; /* SET, APPEND, QUEUE_PUSH; what COMPARE_SET expects */
    struct ct_tcpstore_blob desired; /* COMPARE_SET */
    int64_t number;                  /* ADD: delta; BARRIER: world size */
    uint32_t nonce;                  /* PING; the magic of VALIDATE */
    size_t count;        /* keys of CHECK, WAIT, MULTI_GET; pairs of MULTI_SET */
    const uint8_t *list; /* their blobs: ct_tcpstore_next() */
};

/* The fields of a request that was scanned to its end, borrowed from data. */
void ct_tcpstore_decode_request(const struct ct_tcpstore_scan *scan,
                                const uint8_t *data, struct ct_tcpstore_request *out);
/* Writes a number at `at` and returns the address after it. */
uint8_t *ct_tcpstore_put_u64(uint8_t *at, uint64_t value);
/* The blob at *cursor, which moves past it; only over scanned bytes. */
struct ct_tcpstore_blob ct_tcpstore_next(const uint8_t **cursor);

/* ---- Requests, as a client writes them -------------------------------------------------- */

/* Appends one request. `lists` are the keys (or key, value, key, value ...) of the counted
 * queries, request->list is ignored. 0, -EMSGSIZE above a cap, -ENOTSUP when the dialect has
 * no such query, or what ct_buf_append() says. */
int ct_tcpstore_encode_request(struct ct_buf *out, enum ct_tcpstore_dialect dialect,
                               const struct ct_tcpstore_request *request,
                               const struct ct_tcpstore_blob *lists);

/* ---- Replies ---------------------------------------------------------------------------- */

/* Like ct_tcpstore_scan_request(), for the reply to a query that has a reply; `count` is the number
 * of keys in MULTI_GET. No reply may be longer than `max`. */
int ct_tcpstore_scan_reply(struct ct_tcpstore_scan *scan, enum ct_tcpstore_query query,
                           size_t count, size_t max, const uint8_t *data,
                           size_t length);

/* "COMPARE_SET", for logs. Static. */
const char *ct_tcpstore_query_name(enum ct_tcpstore_query query);
