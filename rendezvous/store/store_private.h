/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the store: its structs and the functions on them.
 *
 *     store.c        life, byte streams in
 *     store_entry.c  names and their values
 *     store_query.c  SET, GET, ADD ... on keys
 *     store_wait.c   WAIT, CHECK, BARRIER, CANCEL_WAIT: waiting clients and their release
 *     store_group.c  runs of stock agents: their clients, and their keys, which end with the run
 *     store_queue.c  QUEUE_PUSH, QUEUE_POP, QUEUE_LEN
 *     store_reply.c  replies out, memory accounts
 *
 * A name has one entry while it has a value, queue elements or waiters, and none otherwise. */
#pragma once

#include "rendezvous/store/store.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_map.h"
#include "worker_sdk/base/list.h"

enum {
    /* An incomplete request, or, while paused, the bytes of one read of the caller. */
    STORE_IN_MAX_BYTES = CT_TCPSTORE_REQUEST_MAX_BYTES + (1 << 20),
    /* A larger input buffer is freed when it is empty. A smaller one is always granted, so that
     * clients that only read a full store continue. */
    STORE_IN_KEEP_BYTES = 16384,
};

struct store_item { /* one queue element */
    struct store_item *next;
    size_t length;
    uint8_t data[];
};

struct store_entry {
    struct store_map_node node;
    struct ct_list link;       /* in store.entries, in order of creation */
    struct ct_list of_group;   /* in group->entries */
    struct store_group *group; /* NULL: belongs to no run of stock agents */
    bool has_value;            /* is a key: counted, listed */
    unsigned int pins; /* > 0: stays even if empty, as a MULTI_SET may fill it */
    uint8_t *value;    /* owned; may be NULL while length is 0 */
    size_t length;
    size_t capacity;
    struct store_item *queue_head; /* owned */
    struct store_item *queue_tail;
    size_t queue_length;
    struct ct_list waits; /* struct store_wait, in order of arrival */
    uint8_t key[];
};

/* One missing element of a client's WAIT. */
struct store_wait {
    struct ct_list link; /* in entry->waits; unlinked once the name was set */
    struct store_client *client;
    struct store_entry *entry;
};

struct store_group;

struct store_client {
    struct store_group *group; /* NULL: in no group */
    struct ct_list link;       /* in store.clients */
    struct store *store;
    store_output_fn *on_output;
    void *context;
    enum ct_tcpstore_dialect dialect;
    struct ct_tcpstore_scan scan; /* scan of the arriving request */
    struct ct_buf in;  /* bytes of that request; while paused also later ones */
    struct ct_buf out; /* always has room for one byte while waiting */
    size_t in_charged; /* capacities counted in the store's accounts */
    size_t out_charged;
    bool is_paused;
    int error; /* < 0: the error that ended it */
    /* A pending WAIT or BARRIER; waits is NULL when there is none. */
    struct store_wait *waits; /* &one_wait, or owned */
    size_t wait_count;        /* elements of waits */
    size_t wait_left;         /* number of these that are not set yet */
    struct store_wait one_wait;
};

struct store {
    struct store_map map;   /* struct store_entry */
    struct ct_list entries; /* all entries, in a stable order for LIST_KEYS */
    struct ct_list clients;
    struct store_map groups; /* struct store_group of present runs */
    struct ct_list over;     /* struct store_group whose run is over: to be purged */
    struct store_client
        *running; /* the client whose requests are being executed: gets no on_output */
    size_t key_bytes;  /* of all names that are keys */
    size_t data_bytes; /* <= data_max, except for small allocations */
    size_t data_max;
    size_t output_bytes;
    size_t output_max;
    struct store_stats stats; /* counters; the rest is filled in on demand */
};

/* ---- store_reply.c ---------------------------------------------------------------------- */

/* 0, or -ENOBUFS when `bytes` more are not allowed. */
int store_check_room(const struct store *store, size_t bytes);
/* Room for a reply of `length` bytes, to be filled at once; NULL: no room, and client->error is
 * set. */
uint8_t *store_reply(struct store_client *client, size_t length);
int store_reply_u8(struct store_client *client, uint8_t value);
int store_reply_i64(struct store_client *client, int64_t value);
int store_reply_blob(struct store_client *client, const uint8_t *data, size_t length);
/* Updates the accounts with the present size of a client's buffers. */
void store_charge_buffers(struct store_client *client);
/* Frees the memory that a large request or reply needed. */
void store_shrink(struct store_client *client);

/* ---- store_entry.c ---------------------------------------------------------------------- */

/* NULL when the name has no entry. */
struct store_entry *store_find(struct store *store, struct ct_tcpstore_blob key);
/* As store_find(), but creates an entry. NULL: out of memory. */
struct store_entry *store_find_or_create(struct store *store,
                                         struct ct_tcpstore_blob key);
/* Frees the entry when nothing is in it any more. */
void store_entry_tidy(struct store *store, struct store_entry *entry);
void store_entry_destroy(struct store *store, struct store_entry *entry);
/* Replaces or extends the value and makes the name a key. 0, -ENOMEM; the old value stays on
 * failure. */
int store_entry_set(struct store *store, struct store_entry *entry, const uint8_t *data,
                    size_t length);
int store_entry_append(struct store *store, struct store_entry *entry,
                       const uint8_t *data, size_t length);
/* Takes `data` (capacity bytes, from ct_realloc_array, may be NULL) as the value. */
void store_entry_take(struct store *store, struct store_entry *entry, uint8_t *data,
                      size_t length);
/* The name is no key any more; waiters and queue stay. May free the entry. */
void store_entry_clear(struct store *store, struct store_entry *entry);
/* Adds to the decimal value and stores it; *result is the new number. -EINVAL when the value
 * is no number, -ENOMEM. */
int store_entry_add(struct store *store, struct store_entry *entry, int64_t delta,
                    int64_t *result);
/* As WAIT and CHECK see it: a key, or a queue with elements. */
bool store_entry_exists(const struct store_entry *entry);

/* ---- store_group.c ---------------------------------------------------------------------- */

/* True if the run of the entry is over: the value is not freed yet, but it is no key any more. */
bool store_group_has_dropped(const struct store_entry *entry);
/* Adds a new entry to the run that its name tells, if any. */
void store_group_attach(struct store *store, struct store_entry *entry);
void store_group_detach(struct store *store, struct store_entry *entry);
/* Counts the entry as a key (count 1), or no longer as a key (count -1). */
void store_group_count(struct store *store, struct store_entry *entry, int count);
/* An entry of a finished run; NULL: none is left. */
struct store_entry *store_group_find_dropped(const struct store *store);
/* Called for a COMPARE_SET on this name: if it is the state of a run, the client joins that run. 0,
 * -ENOMEM. */
int store_group_join(struct store_client *client, struct ct_tcpstore_blob key);
/* Called when the connection ends: the keys of its run end with the last connection of the run. */
void store_group_leave(struct store_client *client);

/* ---- store_wait.c ----------------------------------------------------------------------- */

/* Ends the client's pending wait without a reply. */
void store_wait_drop(struct store_client *client);
/* The name was set: each client that waits for it has one missing name less. */
void store_wake_all(struct store *store, struct store_entry *entry);
/* One element came: walks the waiters in order until one is released. */
void store_wake_one(struct store *store, struct store_entry *entry);

/* ---- Queries: reply, or a negative code to close the connection -------------------------- */

typedef int store_query_fn(struct store_client *client,
                           const struct ct_tcpstore_request *request);

store_query_fn store_query_set;
store_query_fn store_query_compare_set;
store_query_fn store_query_get;
store_query_fn store_query_add;
store_query_fn store_query_check;
store_query_fn store_query_wait;
store_query_fn store_query_num_keys;
store_query_fn store_query_delete;
store_query_fn store_query_append;
store_query_fn store_query_multi_get;
store_query_fn store_query_multi_set;
store_query_fn store_query_cancel_wait;
store_query_fn store_query_ping;
store_query_fn store_query_queue_push;
store_query_fn store_query_queue_pop;
store_query_fn store_query_queue_len;
store_query_fn store_query_list_keys;
store_query_fn store_query_barrier;
store_query_fn store_query_watch_key;
