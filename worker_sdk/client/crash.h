/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the agent where this process crashed: on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT a
 * handler writes signal, address, thread, frames and their modules into memory that the agent
 * holds, too (wire/crash.h). Then the signal does what it does by default: exit status and core
 * file are as without us.
 *
 * A signal that somebody handles or ignores is left alone. One record a process; a child that it
 * forks keeps the handler, but its end is nobody's record. Any thread. */
#pragma once

/* Makes the record and installs the handler, if this process has not yet. The record's
 * descriptor, which stays ours, or a negative errno. */
int ct_crash_arm(void);
/* Called as often as ct_crash_arm() did well: takes record and handler back, and the alternate
 * stack of this thread. */
void ct_crash_disarm(void);
/* Gives the calling thread an alternate stack, if it has none: an overflow of its own stack is
 * told then, too. The thread's end takes it back. 0, or a negative errno. */
int ct_crash_give_stack(void);

/* ---- Its parts; async-signal-safe --------------------------------------------------------- */

/* Return addresses from `context` (a ucontext_t) on, the place of the crash first. Sets *count
 * behind each, so that what is there stays if this fails on the way. */
struct ct_crash;
void ct_crash_walk(struct ct_crash *crash, int record, const void *context);
/* Has the unwinder found and bound beforehand; not for the handler. */
void ct_crash_warm_up(void);
/* Copies from `maps`, a descriptor of /proc/self/maps, the lines of executable mappings that
 * the record's frames are in. */
void ct_crash_find_modules(struct ct_crash *crash, int maps);
