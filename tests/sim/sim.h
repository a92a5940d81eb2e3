/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster in virtual time: one real `struct round`, simulated agents, links with delays.
 *
 *     sim_init ── sim_add_node ... ── sim_at(... faults ...) ── sim_run ── look ── sim_deinit
 *
 * No socket, thread or clock: events come from a heap in the order of their times, so that hours
 * take milliseconds and a seed gives the same story each time. Agents behave as in agent/: they send
 * a heartbeat every second, end their workers and send STOPPED after STOP, resume after a broken
 * link and send again what may be lost, end their workers when nobody answers, and join again as new
 * members. The server keeps the real journal; it may be killed and started again from it.
 *
 * Checked all the time, by abort with the seed: never two live worlds; generations only grow; ranks
 * are unique and without gaps; one START a member and round; master and counts equal for all; a
 * failure reported while another node of the world is dead costs no restart; no run ends without a
 * cause. With settings.pause_ms all connections are direct, and guards end the workers of paused
 * agents. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/journal/journal.h"
#include "rendezvous/round/round.h"

enum sim_fault {
    SIM_FAIL,      /* a worker ends with a code (`code`) */
    SIM_BREAK,     /* the connection breaks; the agent resumes */
    SIM_POWER_OFF, /* node, workers and connection end, and nothing is sent */
    SIM_SILENCE,   /* no message passes for `code` ms, then the link breaks */
    SIM_LEAVE,     /* the agent says LEAVE, ends its workers, closes */
    SIM_PAUSE,     /* the agent is stopped for `code` ms; its host and workers live */
    SIM_PAUSE_SERVER, /* the server is stopped for `code` ms; any node */
    SIM_CRASH,        /* the server is killed, and starts again after `code` ms */
    SIM_GAP,          /* the same, and the last batches of its journal are lost */
    SIM_RESIZE,       /* the agent asks for `code` = min * 1000 + max nodes */
    SIM_DRAIN,        /* the agent asks node `code` to leave; -1: all */
    SIM_RESTART,      /* the agent asks for a new round */
};

enum {
    SIM_EARLY = 100, /* a SIM_FAIL with at least this code is right after the start */
    SIM_NEVER = INT64_MAX
};

struct sim_node {
    uint32_t index;
    uint32_t slots;
    int32_t hint; /* -1: none */
    bool is_endpoint;
    int64_t succeeds_after_ms; /* how long its workers need; SIM_NEVER */
    uint64_t stops_after_ms;   /* how long they need to end; 0: random */

    uint64_t id;                /* of its connection; 0: none */
    struct ct_ticket ticket;    /* of its membership; key 0: none */
    bool is_resuming;           /* no connection, and the lease is not over */
    bool tells_no_age;          /* sends no age of its failures, as older agents do */
    uint64_t failed_ms;         /* when its worker failed */
    uint64_t failed, succeeded; /* generations of its last FAILURE and SUCCEEDED */
    uint32_t resumes;
    uint64_t world; /* of its live workers; never used again, unlike a generation */
    bool is_silent;
    bool is_done;    /* left, refused, powered off, or has its verdict */
    bool is_ending;  /* its workers are being stopped, */
    uint64_t ending; /* those of this generation */
    bool is_leaving;
    uint64_t alive;       /* generation of its live workers; 0: none */
    uint64_t acked_ms;    /* when the last heartbeat was sent that counts as answered */
    uint64_t answered_ms; /* the same, but only heartbeats that the server did answer */
    bool has_held;        /* a START is held back until the server has answered */
    struct ct_start held;
    uint64_t held_world;
    uint64_t paused_until_ms;
    uint64_t data_ms; /* when its host last received something from the server */
    /* messages of this connection not acknowledged by its host */
    uint64_t unacknowledged;
    bool is_shut;   /* its host received the end of the connection */
    bool is_fenced; /* its guard has ended the workers */
    /* arrival of the last message from it: later ones arrive later */
    uint64_t up_ms;
    uint64_t down_ms;
    uint32_t starts;           /* STARTs it got */
    uint32_t waits;            /* WAITINGs */
    bool is_spare;             /* from the last WAITING */
    int refused;               /* code of a REFUSE */
    struct ct_start start;     /* the last */
    struct ct_verdict verdict; /* outcome 0: none */
    struct ct_stop stop;       /* the last; generation 0: none */
};

struct sim {
    struct round_settings settings;
    struct round *round; /* NULL: it is forgotten, or no node has joined yet */
    uint64_t seed;
    uint64_t random;
    uint64_t now_ms;
    struct sim_node *nodes;
    size_t node_count;
    struct sim_event *events; /* a heap */
    size_t event_count, event_capacity;
    uint64_t sequence;
    struct sim_conn *conns; /* by their id - 1 */
    size_t conn_count, conn_capacity;
    uint64_t last_id; /* of members */
    bool is_down;     /* the server */
    uint64_t restarted_ms;
    bool has_gap; /* its journal was cut: generations and restart counts may repeat */
    struct journal_mark mark;
    struct ct_buf *batches;
    size_t batch_count, batch_capacity;
    uint64_t world;
    uint64_t tick_ms;
    size_t alive_count; /* nodes with live workers */
    uint64_t alive_world;
    uint64_t last_generation;
    /* its failure came after a node's death: costs no restart */
    uint64_t free_generation;
    uint32_t restart_count; /* of the last START */
    uint64_t server_paused_until_ms;
    uint32_t failures; /* that agents have reported */
    uint64_t messages_up, messages_down;
    uint64_t first_start_ms;
    uint64_t last_start_ms;
    bool was_forgotten;
};

void sim_init(struct sim *sim, const struct round_settings *settings, size_t node_count,
              uint64_t seed);
void sim_deinit(struct sim *sim);
/* Node i connects and joins at this time. */
void sim_join_at(struct sim *sim, uint64_t at_ms, size_t i);
void sim_fault_at(struct sim *sim, uint64_t at_ms, size_t i, enum sim_fault fault,
                  int64_t code);
/* Runs until there is no event left or until this time. */
void sim_run(struct sim *sim, uint64_t until_ms);
/* Uniform in [0, below). */
uint64_t sim_random(struct sim *sim, uint64_t below);
