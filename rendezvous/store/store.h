/* SPDX-License-Identifier: Apache-2.0 */
/* A TCPStore: the key-value server of PyTorch's process groups, as a pure engine.
 *
 * Bytes of a connection go in, bytes for it come out; no socket, clock or log inside, and
 * nothing blocks. One store is used by one thread. All dialects share one key space: a client's
 * first bytes say which it speaks (specification in worker_sdk/tcpstore/codec.h).
 *
 *     store_add_client ── store_receive ... ── store_remove_client      once per connection
 *                              │
 *                              └─> store_output: send its bytes, consume what was sent
 *
 * Back-pressure: while more than STORE_OUTPUT_MARK_BYTES of replies are unsent, a client's requests
 * are not executed: store_receive() keeps the bytes and returns STORE_PAUSED. The caller then stops
 * reading from that connection, sends, and calls store_resume() each time it has consumed output,
 * until store_resume() returns 0. Releases of waits (one byte each) are written even then.
 *
 * A connection that never sends anything is normal (torch <= 2.0 opens one, and uses a whole CPU
 * core if it is closed): add it and keep it, without a deadline. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/tcpstore/codec.h"

struct store;
struct store_client; /* one connection */

enum {
    STORE_PAUSED = 1
};

/* Called when another client's request has put bytes into this client's output: send them. The
 * callback must not add, remove or feed clients; it may read store_output() and consume. */
typedef void store_output_fn(void *context);

/* A new, empty store. 0, or -ENOMEM. */
int store_create(struct store **out);
/* Frees the store and all its clients. Accepts NULL. */
void store_destroy(struct store *store);
/* Replaces STORE_DATA_MAX_BYTES and STORE_OUTPUT_TOTAL_MAX_BYTES. */
void store_set_limits(struct store *store, size_t data_bytes, size_t output_bytes);

/* NULL: out of memory. on_output may be NULL; context is borrowed. */
struct store_client *store_add_client(struct store *store, store_output_fn *on_output,
                                      void *context);
/* Ends the client's waits; keys that it set remain. Accepts NULL. */
void store_remove_client(struct store_client *client);

/* Takes `length` bytes from the connection (borrowed), executes the requests they complete and
 * appends the replies to store_output(). Requests may be split and pipelined in any way. Returns 0,
 * STORE_PAUSED, or < 0: send the output, then close the connection:
 *   -EPROTO    no TCPStore, or a query that does not exist
 *   -EMSGSIZE  a key, value, count or request above the caps
 *   -EINVAL    ADD or BARRIER on a value that is no number (the value is left alone)
 *   -ENOBUFS   the store or this client's output is full
 *   -ENOMEM
 * After an error only store_output() and store_remove_client() may be called. */
int store_receive(struct store_client *client, const uint8_t *data, size_t length);
/* Continues with the bytes kept while paused; call it after consuming output. Returns as above. */
int store_resume(struct store_client *client);
/* True when a request has begun and is not complete (for a deadline on half-sent requests). */
bool store_is_mid_request(const struct store_client *client);

/* Frees up to `max` keys of finished runs of stock agents; clients do not see these keys any more.
 * True if there are more: call it again soon. */
bool store_purge(struct store *store, size_t max);

/* The bytes to send, borrowed until the client is removed. The caller consumes what it has sent. */
struct ct_buf *store_output(struct store_client *client);

/* For status pages. */
struct store_stats {
    size_t keys; /* as GETNUMKEYS counts */
    size_t clients;
    size_t waiting;      /* clients whose WAIT or BARRIER is pending */
    size_t data_bytes;   /* counted against STORE_DATA_MAX_BYTES */
    size_t output_bytes; /* counted against STORE_OUTPUT_TOTAL_MAX_BYTES */
    uint64_t requests;   /* executed since the store was created */
    uint64_t questions;  /* requests that did more than check whether keys exist */
    uint64_t
        ranks; /* ranks that have counted themselves, as torch's TCPStore does when it is created */
};
void store_get_stats(const struct store *store, struct store_stats *out);
