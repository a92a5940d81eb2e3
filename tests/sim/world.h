/* SPDX-License-Identifier: Apache-2.0 */
/* The product in virtual time. These parts are the real code, and exchange real bytes over connections:
 * the agent's state, its link and its lease; the rendezvous server with its rounds, journal, output
 * commit and candidate. Only what is below them is simulated:
 *
 *     world.c        true time, the nodes' clocks, timers, connections, kernels
 *     world_node.c   a node: the program that is started, its workers, its guard; faults
 *     world_ranks.c  --survive: ranks that are lost, and the others, which ask who continues
 *     world_etcd.c   etcd, and the thread that calls it (launcher/etcd/election.h)
 *     world_ha.c     --ha: how a run starts an etcd of its own, and keeps it
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
    EVENT_CALL,    /* a call of function(context) in it */
    EVENT_CONNECT, /* the first packet of a connection */
    EVENT_ANSWER,  /* the answer to that packet */
    EVENT_ARRIVE,  /* bytes, in order */
    EVENT_ACK,     /* the other kernel has received them */
    EVENT_READY,   /* a program has something to read */
    EVENT_GUARD,   /* the guard checks its page */
    EVENT_DEAD,    /* workers die */
    EVENT_ETCD,    /* a request or its answer arrives */
    EVENT_EXPIRE,  /* etcd checks whether the lease of the leader's key has expired */
    EVENT_STORY,   /* function(world) of the story */
    EVENT_RESUME,  /* a stopped part runs again */
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
    uint64_t order; /* of events at the same time */
    enum world_event_kind kind;
    int node;      /* -1: of no node */
    uint32_t life; /* of the program that it is for; 0: any */
    void *subject;
    uint64_t number;
    void (*function)(void *context);
};

/* One direction of a connection. */
struct world_flow {
    struct world_bytes *first, *last; /* sent, not arrived */
    uint64_t sent, acked, received_us;
    struct ct_buf in; /* arrived, not read yet */
    bool has_end_sent, has_end, is_moving;
};

struct world_conn {
    int ends[2];       /* client, server: nodes */
    uint32_t lives[2]; /* of their programs when they opened it */
    uint32_t boots[2];
    bool is_open[2]; /* the program has it open */
    int error[2];    /* of the next read or write */
    bool is_established, is_accepted;
    struct world_flow flows[2]; /* index: the receiver; 0: the client */
    struct loop_watch *watch;
    struct world_peer *peer;
    struct world_conn *next;
};

/* A rank of a node. After its death, processes that it left continue until the agent has ended
 * them. */
struct world_rank {
    bool works;  /* false: it is gone, or waits until it gets the next world */
    bool is_new; /* it replaces a lost rank; in no world yet */
    uint32_t epoch, losses;
    uint64_t ranks; /* the ranks of its world, a bit each */
};

struct world_node {
    int index, run;
    /* The machine. */
    int64_t rate; /* of its clock, in millionths */
    bool is_on;
    uint32_t boots;
    uint64_t booted_us, asleep_us;
    uint64_t stopped_us[PARTS]; /* since when; 0: it runs */
    uint64_t resumes_us[PARTS];
    uint64_t woke_us;            /* when a part last ran again after a stop */
    uint64_t leads_us;           /* since when it leads; valid while it leads */
    struct world_event *waiting; /* events for a part that is stopped */
    size_t waiting_count, waiting_capacity;
    /* The program. */
    bool is_up, has_ended;
    bool has_mark; /* a killed program has left its mark */
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
    uint64_t live_deadline_ms;               /* deadline of the page, last armed */
    uint64_t dies_us;                        /* 0: they were not killed */
    /* The machine was suspended since the command was started: timers may be late. */
    bool has_slept;
    struct world_rank ranks[WORLD_RANKS]; /* with --survive */
    uint32_t grows_behind; /* 1 + the epoch after which a new rank waits; 0: none */
    bool is_stopping;      /* the agent ends them */
    /* This case is not covered, as ctrun-architecture(7) says. */
    bool is_excepted;
    /* Large and reset with each program, so a new story need not clear them. */
    struct agent_options options;
    struct agent_result result;
    struct agent agent;
};

struct world {
    uint64_t seed, random, now_us;
    enum world_mutant mutant;
    bool has_etcd;
    bool has_ha; /* with has_etcd: the etcd is the run's own */
    /* On the first nodes; 0: on other machines, which are never lost. */
    int etcd_members;
    bool survives;   /* --survive */
    bool replaces;   /* --survive-replace */
    bool has_daemon; /* the first node is a ctrund, without a journal */
    uint32_t min_nodes, max_nodes;
    uint64_t lease_ms, last_call_ms, window_ms, founding_ms;
    int64_t ttl_s;
    int node_count;
    struct world_node *current; /* the node whose program runs */
    bool is_muted;              /* a program is being freed: it sends nothing */
    bool cut[WORLD_NODES_MAX + 1][WORLD_NODES_MAX + 1]; /* from, to */
    uint32_t slow_ms;                                   /* longest delay of a packet */
    uint64_t late_us; /* delay of the next write of a journal; 0: a usual one */
    uint64_t
        mute_until_us; /* until then no thread of --ha sends messages to the endpoint */
    bool is_whole;     /* no more faults follow */
    bool has_resized;
    bool is_excused;    /* the story ends here: the rest is not covered */
    uint64_t opened_us; /* when a cut path was last opened */
    struct world_event *events;
    size_t event_count, event_capacity;
    uint64_t order;
    struct world_conn *conns;
    struct world_etcd *etcd;
    struct world_check *check;
    /* Results. */
    const char *broken; /* the first thing that was wrong */
    uint32_t worlds, kills, elections, instances, shrinks, grows;
    uint64_t exceptions;
    struct world_node
        nodes[WORLD_NODES_MAX]; /* last, because world_begin() does not clear them */
};

extern struct world world;

/* Deterministic. The node_count nodes have clocks that are up to 5 % wrong; all are off. */
void world_begin(uint64_t seed, enum world_mutant mutant, bool has_etcd,
                 int node_count);
/* Runs until this time, or until something is wrong. */
void world_run(uint64_t until_us);
void world_end(void);
uint64_t world_draw(uint64_t below);
/* True with CTRUN_SIM_TRACE. */
bool world_traces(void);
__attribute__((format(printf, 1, 2))) void world_trace(const char *format, ...);
#define TRACE(...) ((void)(world_traces() && (world_trace(__VA_ARGS__), 0)))

/* ---- world.c ----------------------------------------------------------------------------- */

void *world_alloc(size_t size); /* zeroed; valid until world_end() */
void world_push(struct world_event event);
void world_call(struct world_node *node, uint64_t after_us, void (*function)(void *),
                void *context);
uint64_t world_clock_ms(const struct world_node *node);
/* The true time at which the node's clock will show this. */
uint64_t world_when_us(const struct world_node *node, uint64_t clock_ms);
bool world_is_stopped(const struct world_node *node, enum world_part part);
/* Stops the part for this time. If it is stopped already, the later end counts. */
void world_stop(struct world_node *node, enum world_part part, uint64_t for_us);
/* Closes the connections of a program that died, as the kernel does; is_power: nothing is sent. */
void world_drop_conns(struct world_node *node, bool is_power);
/* Calls the handlers of connections and handles that were closed. */
void world_settle(void);
uint64_t world_delay_us(void);
bool world_look(int fd, struct ct_tcp_view *view);
/* There is something to read from WORLD_WAKE_FD. NULL: nobody waits for it. */
void world_wake(struct loop_watch *watch);

/* ---- world_node.c ------------------------------------------------------------------------ */

/* Switches the power on if it is off, and starts the command. */
void world_boot(struct world_node *node);
void world_power_off(struct world_node *node);
void world_kill(struct world_node *node); /* its guard kills the workers */
void world_fail(struct world_node *node); /* a worker fails */
void world_on_guard(struct world_node *node);
void world_on_dead(struct world_node *node);
void world_kill_workers(struct world_node *node, uint64_t within_ms);
bool world_serves(const struct world_node *node);
const char *world_run_id(int run);
/* The node's server, as leader_candidate.h takes it. */
struct server *world_server(struct world_node *node);
/* From now on it may be elected. */
void world_stand(struct world_node *node);
/* ctrunctl resize on that node. Only the first one of a story is sent. */
void world_resize(struct world_node *node, uint32_t min_nodes, uint32_t max_nodes);

/* ---- world_ranks.c ----------------------------------------------------------------------- */

void world_ranks_start(struct world_node *node);
/* A rank of the node dies, unless it is the last one. */
void world_lose(struct world_node *node);
/* Ranks that live and work. */
int world_count_ranks(void);
/* The program has ended. */
void world_ranks_end(struct world_node *node);

/* ---- world_etcd.c ------------------------------------------------------------------------ */

void world_etcd_begin(void);
void world_etcd_end(void);
void world_on_etcd(struct world_event *event);
void world_on_expire(void);
/* There is no quorum for this time, as while etcd elects a leader. */
void world_etcd_stop(uint64_t for_us);
/* A member is lost, or its disk hangs, for this time. */
void world_etcd_hurt(uint64_t for_us);
void world_etcd_heal(void);
bool world_etcd_proved(uint64_t term, uint64_t since_us); /* renewed since then */
uint64_t world_etcd_generation(void);                     /* of the journal in etcd */
void world_election_drop(struct world_node *node);        /* its program has ended */

/* Starts an empty etcd with members on these nodes; a member runs as long as its node's program. */
void world_etcd_found(const int *nodes, int count);
/* That node replaces a member; false without a quorum, or without a path to it. */
bool world_etcd_replace(const struct world_node *node, int member, int by);
bool world_etcd_has_quorum(void);
/* The key belongs to this node. */
bool world_etcd_leads(const struct world_node *node);
/* It asks members that are gone: a new etcd has replaced theirs. */
bool world_etcd_is_orphan(const struct world_node *node);

/* ---- world_ha.c -------------------------------------------------------------------------- */

void world_ha_open(struct world_node *node);
void world_ha_fill(struct agent_options *options);
/* Since then its program has sent messages to the endpoint that the run of that instance lives. */
bool world_ha_tells(const struct world_node *node, uint64_t instance,
                    uint64_t since_us);

/* ---- world_check.c ----------------------------------------------------------------------- */

void world_check_begin(void);
void world_break(const char *what);
void world_check_start(struct world_node *node);
void world_check_live(struct world_node *node);
/* Guard and agent are stopped (or the agent's timers are late) beyond the deadline: not covered. */
void world_note_exception(struct world_node *node);
void world_check_dead(struct world_node *node);
/* This rank of the node starts to work. */
void world_check_rank(struct world_node *node, int local_rank);
/* A message that leaves the server, and a heartbeat that arrived there on that connection. */
void world_check_sent(struct world_node *node, const struct world_node *client,
                      const void *conn, const struct ct_frame *frame);
void world_check_arrived(const struct world_node *server, const void *conn,
                         uint64_t sequence);
void world_check_end(const struct world_node *node);
/* The stories made all transitions that failover.h draws, except those that no story can make;
 * missing ones are printed. */
bool world_check_failovers(void);
/* The network has had no fault for long enough. */
void world_check_whole(void);
/* No server has run for longer than agents look for one. */
void world_check_silent(void);
bool world_check_is_served(void);
