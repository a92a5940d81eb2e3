/* SPDX-License-Identifier: Apache-2.0 */
/* One table has the layout of each query and its reply; scan, decode and encode use it. */
#include "worker_sdk/tcpstore/codec.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum {
    SNIFF_BYTES = 5,  /* VALIDATE and its magic */
    LENGTH_BYTES = 8, /* of every blob and every count */
};

/* [count] [blobs] [tail]; a counted message has `blobs` of them per element. */
struct layout {
    bool is_counted;
    uint8_t blobs;
    uint8_t tail;
};

enum reply_kind {
    REPLY_NONE,
    REPLY_FIXED, /* `reply_bytes` */
    REPLY_BLOB,
    REPLY_BLOBS, /* as many blobs as were requested, without a count */
    REPLY_POP,   /* i64; a blob when it is > 0 */
    REPLY_LIST,  /* count, blobs */
};

static const struct query {
    const char *name;
    struct layout request; /* after the query byte */
    enum reply_kind reply;
    uint8_t reply_bytes;
} queries[CT_TCPSTORE_QUERIES] = {
    [CT_TCPSTORE_VALIDATE] = {"VALIDATE", {false, 0, 4}, REPLY_NONE, 0},
    [CT_TCPSTORE_SET] = {"SET", {false, 2, 0}, REPLY_NONE, 0},
    [CT_TCPSTORE_COMPARE_SET] = {"COMPARE_SET", {false, 3, 0}, REPLY_BLOB, 0},
    [CT_TCPSTORE_GET] = {"GET", {false, 1, 0}, REPLY_BLOB, 0},
    [CT_TCPSTORE_ADD] = {"ADD", {false, 1, 8}, REPLY_FIXED, 8},
    [CT_TCPSTORE_CHECK] = {"CHECK", {true, 1, 0}, REPLY_FIXED, 1},
    [CT_TCPSTORE_WAIT] = {"WAIT", {true, 1, 0}, REPLY_FIXED, 1},
    [CT_TCPSTORE_GETNUMKEYS] = {"GETNUMKEYS", {false, 0, 0}, REPLY_FIXED, 8},
    [CT_TCPSTORE_DELETE_KEY] = {"DELETE_KEY", {false, 1, 0}, REPLY_FIXED, 8},
    [CT_TCPSTORE_APPEND] = {"APPEND", {false, 2, 0}, REPLY_NONE, 0},
    [CT_TCPSTORE_MULTI_GET] = {"MULTI_GET", {true, 1, 0}, REPLY_BLOBS, 0},
    [CT_TCPSTORE_MULTI_SET] = {"MULTI_SET", {true, 2, 0}, REPLY_NONE, 0},
    [CT_TCPSTORE_CANCEL_WAIT] = {"CANCEL_WAIT", {false, 0, 0}, REPLY_FIXED, 1},
    [CT_TCPSTORE_PING] = {"PING", {false, 0, 4}, REPLY_FIXED, 4},
    [CT_TCPSTORE_QUEUE_PUSH] = {"QUEUE_PUSH", {false, 2, 0}, REPLY_NONE, 0},
    [CT_TCPSTORE_QUEUE_POP] = {"QUEUE_POP", {false, 1, 0}, REPLY_POP, 0},
    [CT_TCPSTORE_QUEUE_LEN] = {"QUEUE_LEN", {false, 1, 0}, REPLY_FIXED, 8},
    [CT_TCPSTORE_LIST_KEYS] = {"LIST_KEYS", {false, 0, 0}, REPLY_LIST, 0},
    [CT_TCPSTORE_BARRIER] = {"BARRIER", {false, 1, 8}, REPLY_FIXED, 1},
    [CT_TCPSTORE_WATCH_KEY] = {"WATCH_KEY", {false, 1, 0}, REPLY_FIXED, 1},
};

/* Query bytes of D0, with those that nightlies of May to July 2023 added. */
static const uint8_t d0_queries[] = {
    CT_TCPSTORE_SET,         CT_TCPSTORE_COMPARE_SET, CT_TCPSTORE_GET,
    CT_TCPSTORE_ADD,         CT_TCPSTORE_CHECK,       CT_TCPSTORE_WAIT,
    CT_TCPSTORE_GETNUMKEYS,  CT_TCPSTORE_WATCH_KEY,   CT_TCPSTORE_DELETE_KEY,
    CT_TCPSTORE_APPEND,      CT_TCPSTORE_MULTI_GET,   CT_TCPSTORE_MULTI_SET,
    CT_TCPSTORE_CANCEL_WAIT,
};
enum {
    D0_RELEASED = 9, /* what torch 1.13 and 2.0 have: up to DELETE_KEY */
};

const char *ct_tcpstore_query_name(enum ct_tcpstore_query query)
{
    return query < CT_TCPSTORE_QUERIES ? queries[query].name : "UNKNOWN";
}

/* ---- Bytes ------------------------------------------------------------------------------ */

static uint64_t load_u64(const uint8_t *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static uint32_t load_u32(const uint8_t *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

uint8_t *ct_tcpstore_put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static uint8_t *store_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
    return at + sizeof value;
}

static uint8_t *store_blob(uint8_t *at, struct ct_tcpstore_blob blob)
{
    at = ct_tcpstore_put_u64(at, blob.length);
    if (blob.length)
        memcpy(at, blob.data, blob.length);
    return at + blob.length;
}

/* ---- Query bytes ------------------------------------------------------------------------ */

/* The query for `byte` in this dialect, or -EPROTO. A second VALIDATE is an error. */
static int query_of(enum ct_tcpstore_dialect dialect, uint8_t byte)
{
    switch (dialect) {
    case CT_TCPSTORE_D0: return byte < sizeof d0_queries ? d0_queries[byte] : -EPROTO;
    case CT_TCPSTORE_D2:
        return byte > CT_TCPSTORE_VALIDATE && byte <= CT_TCPSTORE_BARRIER ? byte
                                                                          : -EPROTO;
    case CT_TCPSTORE_UNKNOWN: break;
    }
    return -EPROTO;
}

/* The byte of a query in this dialect, or -ENOTSUP. We read what nightlies added to D0, but
 * never send it: a server of D0 is nearly always torch 1.13 or 2.0. */
static int byte_of(enum ct_tcpstore_dialect dialect, enum ct_tcpstore_query query)
{
    if (dialect == CT_TCPSTORE_D2)
        return query <= CT_TCPSTORE_BARRIER ? (int)query : -ENOTSUP;
    for (int byte = 0; byte < D0_RELEASED; byte++)
        if (query_of(dialect, (uint8_t)byte) == (int)query)
            return byte;
    return -ENOTSUP;
}

int ct_tcpstore_sniff(const uint8_t *data, size_t length, enum ct_tcpstore_dialect *out)
{
    uint32_t word;

    *out = CT_TCPSTORE_UNKNOWN;
    if (!length)
        return 0;
    if (data[0]) {
        if (query_of(CT_TCPSTORE_D0, data[0]) < 0)
            return -EPROTO;
        *out = CT_TCPSTORE_D0;
        return 0;
    }
    if (length < SNIFF_BYTES)
        return 0;
    word = load_u32(data + 1);
    if (word == CT_TCPSTORE_MAGIC) {
        *out = CT_TCPSTORE_D2;
        return SNIFF_BYTES;
    }
    if (word >
        CT_TCPSTORE_KEY_MAX_BYTES) /* a legacy SET: the low half of its key's length */
        return -EPROTO;
    *out = CT_TCPSTORE_D0;
    return 0;
}

/* ---- Scanning --------------------------------------------------------------------------- */

struct caps {
    uint64_t key;
    uint64_t value;
    size_t total;
    bool
        is_paired; /* key, value, key, value ...; otherwise only the first blob is a key */
};

/* Walks over the blobs that have arrived. The length of the message; 0: not complete; -EMSGSIZE. */
static int walk_blobs(struct ct_tcpstore_scan *scan, const struct caps *caps,
                      size_t tail, const uint8_t *data, size_t length)
{
    while (scan->left) {
        bool is_key = caps->is_paired ? scan->seen % 2 == 0 : scan->seen == 0;
        uint64_t bytes;

        scan->need = scan->offset + LENGTH_BYTES;
        if (length < scan->need)
            return 0;
        bytes = load_u64(data + scan->offset);
        if (bytes > (is_key ? caps->key : caps->value) || scan->need > caps->total ||
            bytes > caps->total - scan->need)
            return -EMSGSIZE;
        scan->offset = scan->need + (size_t)bytes;
        scan->left--;
        scan->seen++;
    }
    scan->need = scan->offset + tail;
    return length < scan->need ? 0 : (int)scan->need;
}

/* Reads the count of a counted message. 1: done; 0: not complete; -EMSGSIZE. */
static int walk_count(struct ct_tcpstore_scan *scan, uint64_t max, unsigned int blobs,
                      const uint8_t *data, size_t length)
{
    uint64_t count;

    scan->need = scan->offset + LENGTH_BYTES;
    if (length < scan->need)
        return 0;
    count = load_u64(data + scan->offset);
    if (count > max)
        return -EMSGSIZE;
    scan->left = count * blobs;
    scan->offset = scan->first = scan->need;
    return 1;
}

int ct_tcpstore_scan_request(struct ct_tcpstore_scan *scan,
                             enum ct_tcpstore_dialect dialect, const uint8_t *data,
                             size_t length)
{
    const struct layout *layout;
    struct caps caps = {.key = CT_TCPSTORE_KEY_MAX_BYTES,
                        .value = CT_TCPSTORE_VALUE_MAX_BYTES,
                        .total = CT_TCPSTORE_REQUEST_MAX_BYTES};
    int rc;

    if (length < scan->need)
        return 0;
    if (!scan->offset) {
        scan->need = 1;
        if (!length)
            return 0;
        if ((rc = query_of(dialect, data[0])) < 0)
            return rc;
        scan->query = (uint8_t)rc;
        scan->offset = scan->first = 1;
        scan->left = queries[rc].request.is_counted ? 0 : queries[rc].request.blobs;
    }
    layout = &queries[scan->query].request;
    if (layout->is_counted) {
        caps.is_paired = layout->blobs == 2;
        if (!caps.is_paired)
            caps.value = caps.key;
        if (scan->first == 1 && (rc = walk_count(scan, CT_TCPSTORE_KEYS_MAX,
                                                 layout->blobs, data, length)) <= 0)
            return rc;
    }
    return walk_blobs(scan, &caps, layout->tail, data, length);
}

int ct_tcpstore_scan_reply(struct ct_tcpstore_scan *scan, enum ct_tcpstore_query query,
                           size_t count, size_t max, const uint8_t *data, size_t length)
{
    const struct query *form = &queries[query];
    struct caps caps = {.key = max, .value = max, .total = max};
    int rc;

    if (length < scan->need)
        return 0;
    if (!scan->is_begun) {
        switch (form->reply) {
        case REPLY_NONE: break;
        case REPLY_FIXED: scan->offset = form->reply_bytes; break;
        case REPLY_BLOB: scan->left = 1; break;
        case REPLY_BLOBS: scan->left = count; break;
        case REPLY_POP: /* the old length of the queue: any positive number means one blob */
            if ((scan->need = LENGTH_BYTES) > length)
                return 0;
            scan->left = (int64_t)load_u64(data) > 0;
            scan->offset = scan->first = LENGTH_BYTES;
            break;
        case REPLY_LIST: /* every key takes eight bytes at least */
            if ((rc = walk_count(scan, max / LENGTH_BYTES, 1, data, length)) <= 0)
                return rc;
            break;
        }
        scan->is_begun = true;
    }
    return walk_blobs(scan, &caps, 0, data, length);
}

/* ---- Decoding --------------------------------------------------------------------------- */

struct ct_tcpstore_blob ct_tcpstore_next(const uint8_t **cursor)
{
    struct ct_tcpstore_blob blob = {.data = *cursor + LENGTH_BYTES,
                                    .length = (size_t)load_u64(*cursor)};

    *cursor = blob.data + blob.length;
    return blob;
}

void ct_tcpstore_decode_request(const struct ct_tcpstore_scan *scan,
                                const uint8_t *data, struct ct_tcpstore_request *out)
{
    const struct layout *layout = &queries[scan->query].request;
    const uint8_t *cursor = data + scan->first;

    *out = (struct ct_tcpstore_request){.query = scan->query};
    if (layout->is_counted) {
        out->count = scan->seen / layout->blobs;
        out->list = cursor;
        return;
    }
    if (layout->blobs > 0)
        out->key = ct_tcpstore_next(&cursor);
    if (layout->blobs > 1)
        out->value = ct_tcpstore_next(&cursor);
    if (layout->blobs > 2)
        out->desired = ct_tcpstore_next(&cursor);
    if (layout->tail == sizeof out->number)
        out->number = (int64_t)load_u64(cursor);
    else if (layout->tail)
        out->nonce = load_u32(cursor);
}

/* ---- Encoding --------------------------------------------------------------------------- */

/* Adds a blob's bytes to *total. 0, or -EMSGSIZE above the blob's cap or the request's. */
static int add_length(size_t *total, size_t length, size_t cap)
{
    if (length > cap || LENGTH_BYTES + length > CT_TCPSTORE_REQUEST_MAX_BYTES - *total)
        return -EMSGSIZE;
    *total += LENGTH_BYTES + length;
    return 0;
}

static size_t cap_of(const struct layout *layout, size_t i)
{
    bool is_key = layout->is_counted ? i % layout->blobs == 0 : i == 0;

    return is_key ? CT_TCPSTORE_KEY_MAX_BYTES : CT_TCPSTORE_VALUE_MAX_BYTES;
}

int ct_tcpstore_encode_request(struct ct_buf *out, enum ct_tcpstore_dialect dialect,
                               const struct ct_tcpstore_request *request,
                               const struct ct_tcpstore_blob *lists)
{
    const struct layout *layout = &queries[request->query].request;
    const struct ct_tcpstore_blob fields[] = {request->key, request->value,
                                              request->desired};
    const struct ct_tcpstore_blob *blobs = layout->is_counted ? lists : fields;
    size_t count = layout->blobs * (layout->is_counted ? request->count : 1);
    size_t total = 1u + layout->tail + (layout->is_counted ? LENGTH_BYTES : 0);
    int byte = byte_of(dialect, request->query);
    uint8_t *start;
    uint8_t *at;
    int rc;

    if (byte < 0)
        return byte;
    if (request->count > CT_TCPSTORE_KEYS_MAX)
        return -EMSGSIZE;
    for (size_t i = 0; i < count; i++)
        if ((rc = add_length(&total, blobs[i].length, cap_of(layout, i))) < 0)
            return rc;
    if ((rc = ct_buf_reserve(out, total, &start)) < 0)
        return rc;
    at = start;
    *at++ = (uint8_t)byte;
    if (layout->is_counted)
        at = ct_tcpstore_put_u64(at, request->count);
    for (size_t i = 0; i < count; i++)
        at = store_blob(at, blobs[i]);
    if (layout->tail == sizeof request->number)
        at = ct_tcpstore_put_u64(at, (uint64_t)request->number);
    else if (layout->tail)
        at = store_u32(at, request->nonce);
    ct_buf_commit(out, (size_t)(at - start));
    return 0;
}
