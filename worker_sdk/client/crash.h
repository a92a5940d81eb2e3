/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the agent where this process crashed. On SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT a
 * handler writes signal, address, thread, frames and their modules into memory that it shares with
 * the agent (wire/crash.h). Then the default action of the signal follows: exit status and core
 * file are the same as without us.
 *
 * A signal that the program handles or ignores is left alone. One record for each process. A forked
 * child keeps the handler, but nobody records its crash. Any thread. */
#pragma once

/* Makes the record and installs the handler, unless this process has done so. Returns the record's
 * descriptor, which stays ours, or a negative errno. */
int ct_crash_arm(void);
/* Called once for each successful ct_crash_arm(): frees the record, the handler and the alternate
 * stack of this thread. */
void ct_crash_disarm(void);
/* Gives the calling thread an alternate stack if it has none, so that an overflow of its own stack
 * is reported, too. Freed at the thread's end. 0, or a negative errno. */
int ct_crash_give_stack(void);

/* ---- Its parts; async-signal-safe --------------------------------------------------------- */

/* Stores return addresses from `context` (a ucontext_t), the place of the crash first. Sets *count
 * after each address, so that the addresses found so far stay if this crashes. */
struct ct_crash;
void ct_crash_walk(struct ct_crash *crash, int record, const void *context);
/* Loads and binds the unwinder before it is needed; not for the handler. */
void ct_crash_warm_up(void);
/* Copies from `maps`, a descriptor of /proc/self/maps, the lines of the executable mappings that
 * contain the record's frames. */
void ct_crash_find_modules(struct ct_crash *crash, int maps);
