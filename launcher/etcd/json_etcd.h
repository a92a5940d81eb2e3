/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to etcd's v3 JSON gateway, and its answers: text in and out, no socket.
 *
 * 64-bit numbers come as strings, zero values are left out, bytes are base64. A stream (watch,
 * keep-alive) has one object a line, wrapped in "result". All answers are read into one
 * struct: fields that an answer does not have stay zero. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/base/buf.h"

enum {
    JSON_ETCD_KEY_MAX = 1024,
    JSON_ETCD_TOKEN_MAX = 2000, /* a key of 8192 bits signs with 1366 */
    /* etcd's own limit for a request is 1.5 MiB: what came in through it is no larger. */
    JSON_ETCD_VALUE_MAX_BYTES = 2 << 20,
    JSON_ETCD_KVS_MAX = 4096,
    JSON_ETCD_MEMBERS_MAX = 16,
};

/* etcd's (gRPC's) codes that we distinguish. */
enum json_etcd_code {
    JSON_ETCD_INVALID = 3, /* wrong password, no key, ... */
    JSON_ETCD_NOT_FOUND = 5,
    JSON_ETCD_DENIED = 7,
    JSON_ETCD_UNAVAILABLE = 14, /* no leader, no quorum */
    JSON_ETCD_BAD_TOKEN = 16,
};

struct json_etcd_kv {
    char key[JSON_ETCD_KEY_MAX];
    uint8_t *value; /* owned; terminated by a NUL that is not counted */
    size_t length;
    int64_t create_revision;
    int64_t mod_revision;
    int64_t lease;
    bool is_deleted; /* in a watch */
};

struct json_etcd_member {
    char id[24];
    char name[64]; /* empty: it has never run */
    char peer_url[128];
    char client_url[128];
    bool is_learner;
};

struct json_etcd_reply {
    int64_t revision;  /* of the store */
    int64_t raft_term; /* of the leader, as known to the answering member */
    int64_t lease;     /* of a grant or keep-alive */
    int64_t ttl_s;     /* 0 in a keep-alive: the lease is gone */
    bool succeeded;    /* the comparisons of a transaction were true */
    bool is_created;   /* a watch begins */
    bool is_canceled;  /* a watch ends: start_revision is compacted, or not allowed */
    int64_t compact_revision;
    char token[JSON_ETCD_TOKEN_MAX];
    char leader[24]; /* of a status: the member that leads; empty: none does */
    char member[24]; /* the one that answers */
    struct json_etcd_member members[JSON_ETCD_MEMBERS_MAX]; /* of a list */
    size_t member_count;
    int code; /* enum json_etcd_code or another; 0: no error */
    char message[256];
    struct json_etcd_kv *kvs; /* owned: of a range, a transaction's range, or events */
    size_t count;
};

/* 0, -EBADMSG, -EMSGSIZE (a token that does not fit: cut, it would be another one), -ENOMEM. deinit accepts a zeroed one. */
int json_etcd_read(struct json_etcd_reply *out, const char *text, size_t length);
void json_etcd_reply_deinit(struct json_etcd_reply *reply);

/* Requests, appended to `out`; 0, -ENOBUFS, -ENOMEM. */
int json_etcd_login(struct ct_buf *out, const char *user, const char *password);
int json_etcd_grant(struct ct_buf *out, int64_t ttl_s);
int json_etcd_lease(struct ct_buf *out, int64_t lease); /* keep-alive, revoke */
int json_etcd_range(struct ct_buf *out, const char *key);
/* Changes of one key from start_revision on. */
int json_etcd_watch(struct ct_buf *out, const char *key, int64_t start_revision);

/* {"NAME":"text","NAME":"text"}; the second pair may be NULL, NULL. */
int json_etcd_texts(struct ct_buf *out, const char *name, const char *text,
                    const char *name2, const char *text2);
int json_etcd_member_add(struct ct_buf *out, const char *peer_url); /* as a learner */

/* One write of a transaction. value NULL: delete the key. lease 0: none. */
struct json_etcd_op {
    const char *key;
    const void *value;
    size_t length;
    int64_t lease;
};
/* The condition of a transaction. */
struct json_etcd_guard {
    const char *key;         /* was created in */
    int64_t create_revision; /* this revision; 0: does not exist */
    const char *unchanged;   /* was not written after `revision`; NULL: not checked */
    int64_t revision;        /* of `unchanged` */
};
/* All of `ops` if the guard holds, else none; then the answer holds the guard's key. */
int json_etcd_txn(struct ct_buf *out, const struct json_etcd_guard *guard,
                  const struct json_etcd_op *ops, size_t count);
