/* SPDX-License-Identifier: Apache-2.0 */
/* Kills the workers at the end of the lease when the agent cannot: when it is stopped (SIGSTOP,
 * a debugger) or hangs (a full or dead file system).
 *
 *     agent   fence_arm ── fence_renew with each acknowledged heartbeat ... ── fence_disarm
 *     guards  sleep until fence_next_ms() ── fence_is_over: no, or kill
 *
 * All three share a page, which has the deadline. At the deadline a guard kills the workers, but
 * not the agent, which notices this when it runs again.
 *
 * Where no other server can replace the present one, the guard waits beyond the deadline as long
 * as the server waits for this node. A server that waits for a silent agent sends bytes every
 * fifth of a lease (worker_sdk/wire/message.h): the guard copies the agent's socket
 * (pidfd_getfd) and asks the kernel when the last bytes came. The workers are killed when no
 * bytes came for two fifths of a lease (suspended time counts), when the connection is closed,
 * or when the guard may not look. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In the guard, before the fork. If memory for the page is short, only the agent itself enforces
 * the deadline. */
void fence_create(void);
/* In the second guard, before the agent's fork; then in the agent, before anything else. */
void fence_join(void);
void fence_begin(void);

enum {
    FENCE_SIGNAL_FROM_LAST = 4
};
/* A guard that gets this signal looks at the fence. */
#define FENCE_SIGNAL (SIGRTMAX - FENCE_SIGNAL_FROM_LAST)

/* In the agent: workers live from now on, at most until `until_ms`. patience_ms: bytes from the
 * server that are younger than this prove that it waits; 0: nothing proves that. */
void fence_arm(uint64_t until_ms, uint64_t patience_ms);
/* The connection to the server; -1: none, so nothing proves that the server waits. */
void fence_set_socket(int fd);
/* Does nothing when the fence is not armed. */
void fence_renew(uint64_t until_ms);
/* The workers are being ended for good: messages of another server do not renew the deadline any
 * more. */
void fence_finish(void);
void fence_disarm(void);
/* True when the guard has killed the workers for which the fence was armed last. */
bool fence_has_cut(void);

/* In a guard: when to call fence_is_over(). In the agent: how long it may be silent. UINT64_MAX:
 * not armed. */
uint64_t fence_next_ms(void);
/* True: the caller must kill the agent's workers now; the fence is disarmed. May be called at
 * any time. */
bool fence_is_over(void);
/* The agent's pid; 0: the agent has not begun. */
pid_t fence_agent(void);
