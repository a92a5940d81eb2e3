/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the crew share; nobody else includes it.
 *
 *     crew.c          the start, the ends, the facts
 *     crew_stop.c     the stop of all
 *     crew_restart.c  a worker that is started again alone
 *     crew_memory.c   the looks at their memory */
#ifndef AGENT_CREW_PRIVATE_H
#define AGENT_CREW_PRIVATE_H

#include "agent/cgroup.h"
#include "agent/crew.h"
#include "agent/leftovers.h"
#include "agent/policy.h"
#include "agent/worker.h"

struct crew {
    struct crew_options options;
    struct worker_place place;
    struct ct_start start;
    struct worker *workers;
    int count;
    struct logfile_writer *files;
    struct policy policy;
    struct loop_timer *timer;         /* the policy's next look */
    struct loop_timer *memory_timer;  /* the next look at the memory of the workers */
    struct loop_timer *restart_timer; /* the next look at what one has left behind */
    struct cgroup cgroup;
    char oom_proof[320]; /* of this round; empty: none */
    struct leftovers leftovers;
};

/* ---- crew_stop.c ------------------------------------------------------------------------ */

void crew_on_stop_timer(void *context);
/* The next step of a stop that is under way. */
void crew_continue_stop(struct crew *crew);
void crew_emit_leftovers(const struct crew *crew, const struct leftovers *leftovers,
                         const char *text);

/* ---- crew_restart.c --------------------------------------------------------------------- */

/* Somebody runs, or will again. */
bool crew_is_at_work(const struct crew *crew);
/* Of those that have failed by now: one whose failure is everybody's, `first` if it is not only
 * one's own; NULL: each of them is started again alone. */
struct worker *crew_find_final(struct crew *crew, struct worker *first);
/* False: one could not be started, which was told. */
bool crew_continue_restarts(struct crew *crew);
/* They stay what they are: ended by a failure of their own. */
void crew_give_up_restarts(struct crew *crew);
void crew_on_remains(void *context);

/* ---- crew_memory.c ---------------------------------------------------------------------- */

void crew_on_memory(void *context);
/* "rank 0 holds 5.1 GiB, rank 3 4.2 GiB": who has more than `bytes`; cut is fine. */
void crew_find_larger(const struct crew *crew, uint64_t bytes, char *dst, size_t size);

#endif
