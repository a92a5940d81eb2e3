/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the agent share; nobody else includes it.
 *
 *     agent.c          opens and closes everything, runs the loop
 *     agent_round.c    the state that agent.h draws, and the rounds
 *     agent_link.c     what the server says; a link that breaks
 *     agent_member.c    how many nodes, and who leaves
 *     agent_return.c   a link that is lost, and the way back
 *     agent_resume.c   a link that was made again
 *     agent_seek.c     a host that died and is replaced
 *     agent_heir.c     a host that was lost, and whose members go on without it
 *     agent_request.c  what people ask: signals and ctrunctl
 *     agent_chorus.c   lines that several workers write alike
 *     agent_way.c      the proof that group rank 0 can be reached, before workers start
 *     agent_signal.c   signals to the whole run; the time that is left to save
 *     agent_allocation.c  the end of the time that the batch system has given
 *     agent_hang.c     workers that tell no more steps
 *     agent_watch.c    workers whose timer ran out, or that the kernel holds */
#ifndef AGENT_AGENT_PRIVATE_H
#define AGENT_AGENT_PRIVATE_H

#include "agent/agent.h"
#include "agent/chorus.h"
#include "agent/console.h"
#include "agent/control.h"
#include "agent/crew.h"
#include "agent/fence.h"
#include "agent/heirs.h"
#include "agent/limits.h"
#include "agent/link.h"
#include "agent/remote.h"
#include "agent/signal_once.h"
#include "agent/signals.h"
#include "agent/stuck.h"
#include "agent/watchdog.h"
#include "agent/way.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/takeover.h"

enum agent_state {
    AGENT_CONNECTING,
    AGENT_JOINING,
    AGENT_RUNNING,
    AGENT_STOPPING,
    AGENT_SUCCEEDED, /* all workers ended with 0; the others' may still run */
    AGENT_ENDED,
};

/* What follows a stop. A later one in this list overrules an earlier one. */
enum agent_after {
    AFTER_SUCCEED, /* only leftovers had to go */
    AFTER_REJOIN,  /* report, then do what the server's STOP says */
    AFTER_RETURN,  /* the link is lost: look for the server again */
    AFTER_END,
};

struct agent {
    const struct agent_options *options;
    struct agent_result *result;
    enum agent_state state;
    enum agent_after after;
    uint32_t min_nodes, max_nodes; /* of the run, since a RESIZE; 0: as hello says */
    bool is_silently_lost; /* no word of the server's host either, the last time */
    bool is_gone; /* STOPPING: no worker is left, the server's word is missing */

    struct loop *loop;
    struct console *console_out;
    struct console *console_err; /* may be the same */
    struct chorus *chorus_out;   /* NULL: lines are not collapsed */
    struct chorus *chorus_err;   /* may be the same */
    struct control *control;
    struct remote *remote; /* NULL: ctrunctl cannot reach this run */
    struct loop_timer *drain_timer;
    pid_t drained_by; /* != 0: its ctrunctl has asked us to save and end */
    struct signals *signals;
    struct link *link;
    struct crew *crew;
    struct watchdog *watchdog; /* NULL: no file timer */
    struct stuck *stuck;       /* NULL: not wanted */
    struct hang_watch *hang;   /* NULL: not wanted */
    struct way *way;

    struct ct_start start; /* of the current or last round; generation 0: none yet */
    struct ct_stop stop;   /* for start.generation; reason 0: none came */
    struct ct_failure failure; /* the last one that was told */
    char leave_reason[128];    /* of our LEAVE; empty: none was sent */
    struct ct_join join;       /* the last one */
    uint64_t seek_deadline_ms; /* to find the next host; 0: not looking */
    struct heirs heirs;        /* who may go on when the rendezvous' node is lost */
    struct loop_timer *heir_timer;
    size_t candidate;                      /* the next one of them to ask */
    const struct ct_roster_node *followed; /* who is asked now; NULL: none of them */
    uint64_t follow_deadline_ms;           /* 0: the rendezvous is not lost */
    bool has_gone_round;                   /* all of them were asked once */
    bool is_heir;                 /* this node serves in the lost one's place */
    uint64_t world, world_server; /* the last START that ever came, and whose it was */
    bool has_yielded;             /* this node has served, and serves no more */
    uint64_t
        held_ms; /* since when its next round waits for the others; 0: it does not */
    uint32_t heir_restart_count;
    struct ctrun_error lost; /* why they are asked */
    bool joins_when_gone;    /* STOPPING: the host that was found does not know us */
    bool has_store;
    uint64_t store;
    uint64_t lost_after_ms;
    uint64_t join_ms;
    uint64_t born_ms;
    struct ct_waiting waiting; /* the last one; max_nodes 0: not waiting */
    bool has_told_clock;
    int interrupts; /* Ctrl-Cs that counted */
    int last_signal;
    uint64_t last_signal_ms;
    struct signal_once once;
    struct allocation
        *allocation; /* NULL: its end is not known, or nothing is to be done */
    struct loop_timer *countdown;
    uint64_t grace_deadline_ms; /* when the run is ended here */
};

/* ---- agent_round.c ---------------------------------------------------------------------- */

const char *agent_state_name(enum agent_state state);
void agent_set_state(struct agent *agent, enum agent_state state, const char *why);
void agent_end(struct agent *agent, const char *why);
/* Ends because the agent cannot go on. The first reason is kept. */
void agent_fail(struct agent *agent, const struct ctrun_error *why);
/* Every stop of running workers goes through here. */
void agent_stop(struct agent *agent, enum agent_after after, int signal,
                uint64_t grace_ms, const char *why);
/* Offers this node for the next round, with a new store: nothing of an old one can be read
 * by mistake. */
void agent_join(struct agent *agent);
/* Says the last JOIN, perhaps again. */
void agent_send_join(struct agent *agent);
void agent_close_store(struct agent *agent);
void agent_send_leave(struct agent *agent, const char *why);
/* Our answer to a STOP: that we had it proves that this node was not lost before. */
void agent_send_stopping(struct agent *agent);
void agent_send_stopped(struct agent *agent);
void agent_send_succeeded(struct agent *agent);
/* The server's messages. */
void agent_take_waiting(struct agent *agent, const struct ct_waiting *waiting);
void agent_take_start(struct agent *agent, const struct ct_start *start);
void agent_take_stop(struct agent *agent, const struct ct_stop *message);
void agent_take_verdict(struct agent *agent, const struct ct_verdict *verdict);
/* The way to group rank 0 is known, or not needed: now the workers. */
void agent_start_workers(struct agent *agent);
/* A worker failed, or what they all need. */
void agent_tell_failure(struct agent *agent, const struct ct_failure *failure);
int agent_open_crew(struct agent *agent, struct ctrun_error *err);
int agent_open_control(struct agent *agent, struct ctrun_error *err);

/* ---- agent_signal.c --------------------------------------------------------------------- */

/* To our workers and, unless they keep to themselves, to those of the other nodes. */
void agent_pass_on(struct agent *agent, int signal);
void agent_take_signal(struct agent *agent, const struct ct_signal *message);
uint64_t agent_signal_grace_ms(const struct agent *agent);
void agent_begin_countdown(struct agent *agent, uint64_t grace_ms);
int agent_open_countdown(struct agent *agent, struct ctrun_error *err);

/* ---- agent_request.c -------------------------------------------------------------------- */

/* In --signals-to-handle. */
bool agent_is_ending_signal(const struct agent *agent, int signal);
/* As by a signal that ends the run, but all workers are gone after grace_ms at the latest. */
void agent_end_in_time(struct agent *agent, int signal, uint64_t grace_ms,
                       const char *why);

/* ---- agent_return.c --------------------------------------------------------------------- */

/* The link is lost: the workers end at once. */
void agent_fence(struct agent *agent, const struct ctrun_error *why);
/* They have ended. */
void agent_return(struct agent *agent);
/* WELCOME. */
void agent_has_returned(struct agent *agent);
/* For how long a lost server is looked for. */
uint64_t agent_return_ms(const struct agent *agent);

/* ---- agent_member.c --------------------------------------------------------------------- */

void agent_take_resize(struct agent *agent, const struct ct_resize *message);
void agent_take_drain(struct agent *agent, const struct ct_drain *message);
/* The answer to who asked. */
void agent_take_restart(struct agent *agent, const struct ct_restart *message);
/* The round is stopped because somebody asked for a new one. */
void agent_note_restart(const struct ct_stop *stop);
/* For ctrunctl; context: struct agent. */
int agent_ask_resize(void *context, uint32_t min_nodes, uint32_t max_nodes,
                     struct ct_buf *out, struct ctrun_error *err);
int agent_ask_drain(void *context, const char *words, uint32_t ticket,
                    struct ctrun_error *err);
int agent_ask_restart(void *context, const char *reason, uint32_t ticket,
                      struct ctrun_error *err);
/* agent_request.c: workers that speak to us get the grace time to save and leave; others know only
 * SIGTERM. */
void agent_drain(struct agent *agent, const char *reason, pid_t sender);

/* ---- The others ------------------------------------------------------------------------- */

/* Behind the consoles; nothing without --collapse. */
int agent_open_chorus(struct agent *agent, struct ctrun_error *err);
/* What waits in there goes to the consoles; is_end: and all that follows, at once. */
void agent_flush_chorus(struct agent *agent, bool is_end);
void agent_close_chorus(struct agent *agent);
int agent_open_link(struct agent *agent, struct ctrun_error *err);
int agent_open_way(struct agent *agent, struct ctrun_error *err);
/* Finds out how the workers of this round reach group rank 0, then agent_start_workers(). */
void agent_find_way(struct agent *agent);
/* context: struct agent; see link.h. */
uint8_t agent_get_resume_state(void *context);
void agent_on_break(void *context, const struct ctrun_error *why, uint64_t left_ms);
void agent_on_resumed(void *context, const struct ct_resumed *resumed);
/* True when the loss of the server is no end: another one is looked for. */
bool agent_seek_host(struct agent *agent, const struct ctrun_error *why);
/* It welcomes us as a new node: joins, as soon as nothing runs here any more. */
void agent_take_host(struct agent *agent);
/* agent_heir.c: the same where its members go on without it. */
bool agent_seek_heir(struct agent *agent, const struct ctrun_error *why);
bool agent_may_follow(const struct agent *agent);
/* The rendezvous is in this process. */
bool agent_serves(const struct agent *agent);
void agent_take_roster(struct agent *agent, const struct ct_roster *roster);
void agent_take_echo(struct agent *agent, const struct ct_echo *echo);
void agent_follow(struct agent *agent);
void agent_has_found(struct agent *agent);
void agent_has_followed(struct agent *agent);
int agent_open_heirs(struct agent *agent, struct ctrun_error *err);
void agent_close_heirs(struct agent *agent);
int agent_open_allocation(struct agent *agent, struct ctrun_error *err);
int agent_open_signals(struct agent *agent, struct ctrun_error *err);
/* Never fatal: the run does not need it. */
void agent_open_remote(struct agent *agent);
/* The workers have saved, or are out of time: from here on it is a SIGTERM like any other.
 * context: struct agent. */
void agent_drained(void *context);
/* The stop is for a rank that is stuck: stacks are saved first, and then the workers stopped. */
bool agent_saves_stacks(struct agent *agent, const struct ct_stop *stop);
void agent_start_hang(struct agent *agent);
void agent_stop_hang(struct agent *agent);
int agent_open_hang(struct agent *agent, struct ctrun_error *err);
void agent_close_hang(struct agent *agent);
int agent_open_watchdog(struct agent *agent, struct ctrun_error *err);
int agent_open_stuck(struct agent *agent, struct ctrun_error *err);

#endif
