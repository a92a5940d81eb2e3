/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the workers when the agent itself cannot see to it: it is stopped (SIGSTOP, a
 * debugger) or hangs (a full or dead file system), and its lease runs out meanwhile.
 *
 *     agent   fence_arm ── fence_renew with each acknowledged heartbeat ... ── fence_disarm
 *     guard   sleeps until fence_next_ms() ── fence_check: fine, wait, or kill
 *
 * Both share a page. When the time in it has come, the guard takes a copy of the agent's socket
 * (pidfd_getfd) and asks the kernel when it got the last bytes: a server that wants to be patient
 * with a silent agent sends it some every fifth of a lease (worker_sdk/wire/message.h). Nothing
 * for two fifths, a closed connection, or no right to look: the workers are killed. The
 * agent is not: it finds out when it wakes up. */
#ifndef AGENT_FENCE_H
#define AGENT_FENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In the guard, before the fork. Without memory for it there is no fence but the agent's. */
void fence_create(void);

/* In the agent: workers live from now on, and may until `until_ms`. */
void fence_arm(uint64_t until_ms, uint64_t lost_after_ms);
/* The connection to the server; -1: nothing proves that a silent agent is only paused. */
void fence_set_socket(int fd);
/* Nothing when it is not armed. */
void fence_renew(uint64_t until_ms);
void fence_disarm(void);
/* True when the workers that were armed for last have been killed by the guard. */
bool fence_has_cut(void);

/* In the guard: when to call fence_check(); UINT64_MAX: nothing is armed. */
uint64_t fence_next_ms(void);
/* True: the workers of `agent` have to die now; it is disarmed then. */
bool fence_is_over(pid_t agent);

#endif
