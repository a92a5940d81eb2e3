/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the workers when the agent itself cannot see to it: it is stopped (SIGSTOP, a
 * debugger) or hangs (a full or dead file system), and its lease runs out meanwhile.
 *
 *     agent   fence_arm ── fence_renew with each acknowledged heartbeat ... ── fence_disarm
 *     guards  sleep until fence_next_ms() ── fence_is_over: no, or kill
 *
 * All three share a page. When the time in it has come the workers are killed. The agent is not: it
 * finds out when it wakes up.
 *
 * Where no other server can take the place of the one that we have, the guard waits longer than
 * that for a server that waits for us: it takes a copy of the agent's socket (pidfd_getfd) and asks
 * the kernel when it got the last bytes, for a server that is patient with a silent agent sends it
 * some every fifth of a lease (worker_sdk/wire/message.h). Nothing for two fifths, during which the
 * machine may have been suspended, a closed connection, or no right to look: the workers are killed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In the guard, before the fork. Without memory for it there is no fence but the agent's. */
void fence_create(void);
/* In the second guard, before the agent's fork; then in the agent, before anything else. */
void fence_join(void);
void fence_begin(void);

enum {
    FENCE_SIGNAL_FROM_LAST = 4
};
/* A guard looks at the fence when it gets this one. */
#define FENCE_SIGNAL (SIGRTMAX - FENCE_SIGNAL_FROM_LAST)

/* In the agent: workers live from now on, and may until `until_ms`. patience_ms: bytes from the
 * server that are younger than this prove that it waits; 0: nothing does. */
void fence_arm(uint64_t until_ms, uint64_t patience_ms);
/* The connection to the server; -1: nothing proves that a silent agent is only paused. */
void fence_set_socket(int fd);
/* Nothing when it is not armed. */
void fence_renew(uint64_t until_ms);
/* The workers are being ended for good: what another server says renews nothing. */
void fence_finish(void);
void fence_disarm(void);
/* True when the workers that were armed for last have been killed by the guard. */
bool fence_has_cut(void);

/* In a guard: when to call fence_is_over(). In the agent: until then it may be silent. UINT64_MAX: nothing is armed. */
uint64_t fence_next_ms(void);
/* True: the workers of the agent have to die now, by the hand of who asked; it is disarmed then.
 * Any time. */
bool fence_is_over(void);
/* The agent's pid; 0: it has not begun. */
pid_t fence_agent(void);
