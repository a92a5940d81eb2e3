/* SPDX-License-Identifier: Apache-2.0 */
/* A client of a TCPStore: ctrun's, or one of PyTorch's from 1.13 on. Blocking, with deadlines.
 *
 *     ct_store_open(&store, host, port, timeout_ms, &err)
 *     ct_store_set(store, "addr/3", bytes, n, &err) ... ct_store_wait(...)
 *     ct_store_close(store)
 *
 * A key is text; on the wire it gets a '/' in front, as PyTorch's clients do, so that key "k"
 * here and store.set("k") there are the same. Values are bytes.
 *
 * Every call ends within the store's timeout (ct_store_open's, changed by
 * ct_store_set_timeout()) or the timeout that it takes itself. After CTRUN_E_TIMEOUT of get
 * and wait the store is still usable (the wait is cancelled, or, with a server that
 * cannot cancel, the connection is replaced). After any other network error the store is dead:
 * every later call fails with -EPIPE.
 *
 * A server closes the connection instead of reporting an error (a value that is no number, a
 * key above 8 KiB, a query it does not know); that is CTRUN_E_PROTOCOL here.
 *
 * One thread at a time per store. Never raises SIGPIPE, restarts after EINTR. */
#ifndef CT_CLIENT_STORE_H
#define CT_CLIENT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

struct ct_store;

/* Connects, trying all addresses of host again with growing pauses until timeout_ms is over.
 * Speaks the protocol of torch >= 2.2 and falls back to that of torch <= 2.0 when the server
 * resets the connection at its first bytes. Fails with CTRUN_E_DNS, CTRUN_E_UNREACHABLE (says
 * how often and what the last try met), CTRUN_E_PROTOCOL (somebody is there, but no store). */
int ct_store_open(struct ct_store **out, const char *host, int port,
                  uint64_t timeout_ms, struct ctrun_error *err);
/* Accepts NULL. */
void ct_store_close(struct ct_store *store);
void ct_store_set_timeout(struct ct_store *store, uint64_t timeout_ms);
/* True when the server speaks the protocol of torch >= 2.2. */
bool ct_store_is_modern(const struct ct_store *store);

/* Returns when the bytes are with the kernel: no reply exists. Every other call is a round
 * trip behind all sets before it. */
int ct_store_set(struct ct_store *store, const char *key, const void *value,
                 size_t length, struct ctrun_error *err);
/* Waits until key exists. *value is allocated, with a NUL behind its bytes: free() it. */
int ct_store_get(struct ct_store *store, const char *key, void **value, size_t *length,
                 struct ctrun_error *err);
/* Adds to a decimal counter, 0 when absent; *result may be NULL. */
int ct_store_add(struct ct_store *store, const char *key, int64_t delta,
                 int64_t *result, struct ctrun_error *err);
/* 1 when the key was there, 0 when not. */
int ct_store_delete(struct ct_store *store, const char *key, struct ctrun_error *err);
/* Waits until all keys were set. CTRUN_E_TIMEOUT names the first keys that are missing. */
int ct_store_wait(struct ct_store *store, const char *const *keys, size_t count,
                  uint64_t timeout_ms, struct ctrun_error *err);
/* 1 when all keys exist, 0 when not. */
int ct_store_check(struct ct_store *store, const char *const *keys, size_t count,
                   struct ctrun_error *err);
/* Every key, in an array of `count`: one block, free() it. With a modern server only. */
int ct_store_list_keys(struct ct_store *store, char ***keys, size_t *count,
                       struct ctrun_error *err);

#endif
