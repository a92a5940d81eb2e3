/* SPDX-License-Identifier: Apache-2.0 */
/* The store of ctrun.h, with private functions: a client of a TCPStore, of ctrun or of PyTorch 1.13
 * and newer. Blocking, with deadlines.
 *
 *     ct_store_connect(&store, host, port, timeout_ms, &err)
 *     ctrun_store_set(store, "addr/3", bytes, n, &err) ... ctrun_store_wait(...)
 *     ctrun_store_close(store)
 *
 * On the wire each key is prefixed with '/', as PyTorch's clients do, so that key "k" here and
 * store.set("k") there are the same.
 *
 * After CTRUN_E_TIMEOUT of get and wait the store is still usable if the server still answers: the
 * wait is cancelled, or, with a server that cannot cancel, the connection is replaced. After any other network error the store
 * is dead: every later call fails with -EPIPE. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

/* Connects, trying all addresses of host again with growing pauses until timeout_ms is over. Speaks
 * the protocol of torch >= 2.2 and falls back to that of torch <= 2.0 when the server resets the
 * connection at its first bytes. Fails with CTRUN_E_DNS, CTRUN_E_UNREACHABLE (the text tells how
 * often it tried and the last error), CTRUN_E_PROTOCOL (the server is no store); -EMFILE, -ENFILE,
 * -ENOBUFS, -ENOMEM at once. */
int ct_store_connect(struct ctrun_store **out, const char *host, int port,
                     uint64_t timeout_ms, struct ctrun_error *err);
void ct_store_set_timeout(struct ctrun_store *store, uint64_t timeout_ms);
/* The connection; borrowed; -1: it has ended. */
int ct_store_fd(const struct ctrun_store *store);
/* True when all calls fail with -EPIPE. */
bool ct_store_has_ended(const struct ctrun_store *store);
/* True when the server speaks the protocol of torch >= 2.2. */
bool ct_store_is_modern(const struct ctrun_store *store);

/* Sets key to `desired` if it holds `expected`, or if it does not exist and `expected` is empty.
 * *actual is what the key holds afterwards (`expected` if it does not exist); free() it. */
int ct_store_compare_set(struct ctrun_store *store, const char *key,
                         const char *expected, const char *desired, void **actual,
                         size_t *length, struct ctrun_error *err);
/* 1 when all keys exist, 0 when not. */
int ct_store_check(struct ctrun_store *store, const char *const *keys, size_t count,
                   struct ctrun_error *err);
/* All keys, in an array of `count`, allocated as one block: free() it. With a modern server
 * only. */
int ct_store_list_keys(struct ctrun_store *store, char ***keys, size_t *count,
                       struct ctrun_error *err);
