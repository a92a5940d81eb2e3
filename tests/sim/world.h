/* SPDX-License-Identifier: Apache-2.0 */
/* The product in virtual time: the agent's state, its link and its lease, the rendezvous server
 * with its rounds, journal, output commit and candidate run as they are, byte for byte over connections.
 * Only what is below them is simulated:
 *
 *     world.c        true time, the nodes' clocks, timers, connections, kernels
 *     world_node.c   a node: the program that is started, its workers, its guard; faults
 *     world_ranks.c  --survive: ranks that are lost, and those that ask who goes on
 *     world_etcd.c   etcd, and the thread that calls it (launcher/etcd/election.h)
 *     world_ha.c     --ha: how a run gets an etcd of its own, and keeps it
 *     world_check.c  what must hold, after each step, by the true time
 *     world_sim.c    stories
 *
 * A seed is a story. Times are true time in microseconds where they are called _us, and a node's
 * own clock where they are called _ms. One world at a time, one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/node/agent_private.h"
#include "agent/guard/fence_page.h"
#include "agent/link/link_private.h"
#include "launcher/etcd/leader_candidate.h"
#include "launcher/etcd/election.h"
#include "rendezvous/session/dispatch.h"
#include "rendezvous/session/output_commit.h"
#include "rendezvous/session/run.h"
#include "worker_sdk/net/tcp.h"
#include "worker_sdk/wire/contract.h"

enum {
    WORLD_NODES_MAX = 6,
    WORLD_ETCD = WORLD_NODES_MAX, /* in world.cut */
    WORLD_MS = 1000,              /* of true time */
    WORLD_DIE_MAX_MS = 2000,      /* SIGKILL to death, ROUND_KILL_MS */
    WORLD_WAKE_FD = 500,          /* of --ha */
    WORLD_RANKS = 3,              /* of a node, with --survive */
    WORLD_SURVIVE_MS = 3000,
};

enum world_mutant {
    MUTANT_NONE,
    MUTANT_ACK_BEFORE_RENEWAL,
    MUTANT_PATIENT_AGENT,
    MUTANT_HALF_WAIT,
    MUTANT_DEADLINE_FROM_ANSWER,
    MUTANT_MONOTONIC_CLOCK,
    MUTANT_INSTANCE_IGNORED,
    MUTANT_JOURNAL_OF_ANY_TERM,
    MUTANT_OLD_LEADER,
    MUTANT_STILL_AT_ONCE,
    MUTANT_REMAINS_IGNORED,
    MUTANT_STILL_OF_ANY_EPOCH,
    MUTANT_LOST_NODE_NOT_OUTLIVED,
    MUTANTS
};

enum world_event_kind {
    EVENT_TIMER,   /* of a node's program */
    EVENT_CALL,    /* into it: function(context) */
    EVENT_CONNECT, /* the first packet of a connection */
    EVENT_ANSWER,  /* the answer to that */
    EVENT_ARRIVE,  /* bytes, in order */
    EVENT_ACK,     /* the other kernel has them */
    EVENT_READY,   /* a program has something to read */
    EVENT_GUARD,   /* looks at its page */
    EVENT_DEAD,    /* workers */
    EVENT_ETCD,    /* a request gets there, or its answer comes back */
    EVENT_EXPIRE,  /* etcd looks whether the lease of the host's key is over */
    EVENT_STORY,   /* function(world) of the story */
    EVENT_RESUME,  /* what was stopped goes on */
    EVENT_BOOT,    /* power is back, or the command is started again */
};

enum world_part {
    PART_AGENT, /* and the server in its process */
    PART_GUARD,
    PART_HOST,
    PARTS
};

struct world_event {
    uint64_t at_us;
    uint64_t order; /* of those at the same time */
    enum world_event_kind kind;
    int node;      /* -1: none's */
    uint32_t life; /* of the program it is for; 0: any */
    void *subject;
    uint64_t number;
    void (*function)(void *context);
};

/* One direction of a connection. */
struct world_flow {
    struct world_bytes *first, *last; /* on their way */
    uint64_t sent, acked, received_us;
    struct ct_buf in; /* arrived, not read */
    bool has_end_sent, has_end, is_moving;
};

struct world_conn {
    int ends[2];       /* client, server: nodes */
    uint32_t lives[2]; /* of their programs, when they opened it */
    uint32_t boots[2];
    bool is_open[2]; /* the program holds it */
    int error[2];    /* of the next read or write */
    bool is_established, is_accepted;
    struct world_flow flows[2]; /* by who receives: 0: the client */
    struct loop_watch *watch;
    struct world_peer *peer;
    struct world_conn *next;
};

/* A rank of a node. What is left of one that has died works on until the agent has ended it. */
struct world_rank {
    bool works;  /* else it is gone, or waits until it knows who continues */
    bool is_new; /* in the place of a lost one; in no world yet */
    uint32_t epoch, losses;
    uint64_t ranks; /* with whom; a bit each */
};

struct world_node {
    int index, run;
    /* The machine. */
    int64_t rate; /* of its clock, in millionths */
    bool is_on;
    uint32_t boots;
    uint64_t booted_us, asleep_us;
    uint64_t stopped_us[PARTS]; /* since; 0: it runs */
    uint64_t resumes_us[PARTS];
    uint64_t woke_us;            /* when a part went on last */
    uint64_t leads_us;           /* since; while it leads */
    struct world_event *waiting; /* for a part that is stopped */
    size_t waiting_count, waiting_capacity;
    /* The program. */
    bool is_up, has_ended;
    bool has_mark; /* what a program that was killed left behind */
    uint32_t life;
    int exit_code;
    uint64_t ended_us;
    struct dispatch *dispatch; /* NULL: it has no server */
    struct conn_pool *pool;
    struct leader_candidate *candidate;
    struct election *election;
    struct worker_group *group;
    struct fence_page page;
    int fence_fd;
    uint64_t look_again_ms;
    uint64_t own_instance; /* of its first START; 0: none yet */
    /* Its workers. */
    uint64_t live_instance, live_generation; /* 0: none */
    uint64_t live_deadline_ms;               /* the page's, when it was last armed */
    uint64_t dies_us;                        /* 0: nobody has killed them */
    bool has_slept; /* since the command was started: the agent's timers may be late */
    struct world_rank ranks[WORLD_RANKS]; /* with --survive */
    uint32_t grows_behind; /* 1 + the epoch after which a new one waits; 0: none */
    bool is_stopping;      /* the agent has them ended */
    bool is_excepted;      /* what ctrun-architecture(7) says is not covered */
    /* Large, and made anew with each program: no story begins with clearing them. */
    struct agent_options options;
    struct agent_result result;
    struct agent agent;
};

struct world {
    uint64_t seed, random, now_us;
    enum world_mutant mutant;
    bool has_etcd;
    bool has_ha;      /* with has_etcd: the run's own */
    int etcd_members; /* on the first nodes; 0: elsewhere, where none is ever lost */
    bool survives;    /* --survive */
    bool replaces;    /* --survive-replace */
    bool has_daemon;  /* the first node is a ctrund, without a journal */
    uint32_t min_nodes, max_nodes;
    uint64_t lease_ms, last_call_ms, window_ms, founding_ms;
    int64_t ttl_s;
    int node_count;
    struct world_node *current; /* whose program runs */
    bool is_muted;              /* a program is being taken apart: it says nothing */
    bool cut[WORLD_NODES_MAX + 1][WORLD_NODES_MAX + 1]; /* from, to */
    uint32_t slow_ms;                                   /* packets take up to so long */
    uint64_t
        late_us; /* the next write of a journal is on its way for so long; 0: as any */
    uint64_t
        mute_until_us; /* the threads of --ha are busy: none tells who is at the endpoint */
    bool is_whole;     /* no fault will come */
    bool has_resized;
    bool is_excused;    /* the story is over */
    uint64_t opened_us; /* when a way was opened last */
    struct world_event *events;
    size_t event_count, event_capacity;
    uint64_t order;
    struct world_conn *conns;
    struct world_etcd *etcd;
    struct world_check *check;
    /* What was seen. */
    const char *broken; /* the first thing that did not hold */
    uint32_t worlds, kills, elections, instances, shrinks, grows;
    uint64_t exceptions;
    struct world_node
        nodes[WORLD_NODES_MAX]; /* last: they are not cleared as a whole */
};

extern struct world world;

/* Deterministic; node_count nodes with clocks that are up to 5 % wrong, all off. */
void world_begin(uint64_t seed, enum world_mutant mutant, bool has_etcd,
                 int node_count);
/* Until then, or something does not hold. */
void world_run(uint64_t until_us);
void world_end(void);
uint64_t world_draw(uint64_t below);
/* CTRUN_SIM_TRACE. */
bool world_traces(void);
__attribute__((format(printf, 1, 2))) void world_trace(const char *format, ...);
#define TRACE(...) ((void)(world_traces() && (world_trace(__VA_ARGS__), 0)))

/* ---- world.c ----------------------------------------------------------------------------- */

void *world_alloc(size_t size); /* zeroed, until world_end() */
void world_push(struct world_event event);
void world_call(struct world_node *node, uint64_t after_us, void (*function)(void *),
                void *context);
uint64_t world_clock_ms(const struct world_node *node);
/* The true time at which the node's clock will show this. */
uint64_t world_when_us(const struct world_node *node, uint64_t clock_ms);
bool world_is_stopped(const struct world_node *node, enum world_part part);
/* For so long; what is already stopped stays so for longer. */
void world_stop(struct world_node *node, enum world_part part, uint64_t for_us);
/* The kernel ends the connections of a program that died; power: nobody says anything. */
void world_drop_conns(struct world_node *node, bool is_power);
/* Conns that were closed are told so. */
void world_settle(void);
uint64_t world_delay_us(void);
bool world_look(int fd, struct ct_tcp_view *view);
/* Something is there to be read from WORLD_WAKE_FD. NULL: nobody waits for it. */
void world_wake(struct loop_watch *watch);

/* ---- world_node.c ------------------------------------------------------------------------ */

/* Power on, if need be, and the command. */
void world_boot(struct world_node *node);
void world_power_off(struct world_node *node);
void world_kill(struct world_node *node); /* the program; its guard kills the workers */
void world_fail(struct world_node *node); /* a worker */
void world_on_guard(struct world_node *node);
void world_on_dead(struct world_node *node);
void world_kill_workers(struct world_node *node, uint64_t within_ms);
bool world_serves(const struct world_node *node);
const char *world_run_id(int run);
/* leader_candidate.h knows the node's server as this. */
struct server *world_server(struct world_node *node);
/* It may be elected from now on. */
void world_stand(struct world_node *node);
/* ctrunctl resize, on that node; the first one of a story. */
void world_resize(struct world_node *node, uint32_t min_nodes, uint32_t max_nodes);

/* ---- world_ranks.c ----------------------------------------------------------------------- */

void world_ranks_start(struct world_node *node);
/* A rank of the node dies, unless it is its last one. */
void world_lose(struct world_node *node);
/* Ranks that live and are at work. */
int world_count_ranks(void);
/* The program is gone. */
void world_ranks_end(struct world_node *node);

/* ---- world_etcd.c ------------------------------------------------------------------------ */

void world_etcd_begin(void);
void world_etcd_end(void);
void world_on_etcd(struct world_event *event);
void world_on_expire(void);
/* No quorum for so long, as while it elects a leader. */
void world_etcd_stop(uint64_t for_us);
/* One of its members is lost, or its disk hangs, for so long. */
void world_etcd_hurt(uint64_t for_us);
void world_etcd_heal(void);
bool world_etcd_proved(uint64_t term, uint64_t since_us); /* a renewal since then */
uint64_t world_etcd_generation(void);                     /* of the journal there */
void world_election_drop(struct world_node *node);        /* its program is gone */

/* Members on these nodes, with nothing in them, for as long as their programs live. */
void world_etcd_found(const int *nodes, int count);
/* That node changes them: false without a quorum, or a way there. */
bool world_etcd_replace(const struct world_node *node, int member, int by);
bool world_etcd_has_quorum(void);
/* The key is this node's. */
bool world_etcd_leads(const struct world_node *node);
/* It asks members that are no more: those of another founding came after them. */
bool world_etcd_is_orphan(const struct world_node *node);

/* ---- world_ha.c -------------------------------------------------------------------------- */

void world_ha_open(struct world_node *node);
void world_ha_fill(struct agent_options *options);
/* Since then its program has told whoever listens at the endpoint that the run of that instance lives. */
bool world_ha_tells(const struct world_node *node, uint64_t instance,
                    uint64_t since_us);

/* ---- world_check.c ----------------------------------------------------------------------- */

void world_check_begin(void);
void world_break(const char *what);
void world_check_start(struct world_node *node);
void world_check_live(struct world_node *node);
/* The guard is stopped beyond the deadline, and the agent is, too, or late: not covered. */
void world_note_exception(struct world_node *node);
void world_check_dead(struct world_node *node);
/* That rank of the node begins to work. */
void world_check_rank(struct world_node *node, int local_rank);
/* What leaves the server, and a heartbeat that came to it; of that connection. */
void world_check_sent(struct world_node *node, const struct world_node *client,
                      const void *conn, const struct ct_frame *frame);
void world_check_arrived(const struct world_node *server, const void *conn,
                         uint64_t sequence);
void world_check_end(const struct world_node *node);
/* The ways that failover.h draws were gone, but for those that no story can go; what is missing is
 * printed. */
bool world_check_failovers(void);
/* The network has been whole for long enough. */
void world_check_whole(void);
/* Nobody has served for longer than agents look for a server. */
void world_check_silent(void);
bool world_check_is_served(void);
