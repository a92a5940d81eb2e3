/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster in virtual time: one real `struct round`, simulated agents, links with delays.
 *
 *     sim_init ── sim_add_node ... ── sim_at(... faults ...) ── sim_run ── look ── sim_deinit
 *
 * No socket, thread or clock: events come from a heap in order of their time, so that hours
 * take milliseconds and a seed gives the same story each time. Agents behave like agent/:
 * they beat every second, end their workers and say STOPPED when told, resume after a broken link
 * and say again what may be lost, fence themselves when nobody answers, and come back as new ones.
 * The server keeps the real journal, and may be killed and begin again from it.
 *
 * Checked all the time, by abort with the seed: never two live worlds; generations only grow;
 * ranks dense and unique; one START a member and round; master and counts equal for all; a
 * failure that is heard while another node of the world is dead costs no restart; no run ends
 * without a cause. With settings.pause_ms all connections are direct, and guards look after
 * the workers of paused agents. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/journal/journal.h"
#include "rendezvous/round/round.h"

enum sim_fault {
    SIM_FAIL,      /* a worker ends with a code (`code`) */
    SIM_BREAK,     /* the connection breaks; the agent resumes */
    SIM_POWER_OFF, /* node, workers and link are gone without a word */
    SIM_SILENCE,   /* nothing passes for `code` ms, then the link is found broken */
    SIM_LEAVE,     /* the agent says LEAVE, ends its workers, closes */
    SIM_PAUSE,     /* the agent is stopped for `code` ms; its host and workers live */
    SIM_PAUSE_SERVER, /* the server is, whichever the node */
    SIM_CRASH,        /* the server is killed, and begins again after `code` ms */
    SIM_GAP,          /* the same, and the last batches of its journal are lost */
    SIM_RESIZE,       /* the agent asks for `code` = min * 1000 + max nodes */
    SIM_DRAIN,        /* the agent asks node `code` to leave; -1: all */
    SIM_RESTART,      /* the agent asks for a new round */
};

enum {
    SIM_EARLY =
        100, /* a SIM_FAIL with this code or above is one right after the start */
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
    bool tells_no_age;          /* of its failures: of the form before there were any */
    uint64_t failed_ms;         /* when its worker really did */
    uint64_t failed, succeeded; /* generations that it told so of */
    uint32_t resumes;
    uint64_t world; /* of its live workers: unlike generations never the same again */
    bool is_silent;
    bool is_done;    /* left, refused, powered off, or has its verdict */
    bool is_ending;  /* its workers are being stopped, */
    uint64_t ending; /* those of this generation */
    bool is_leaving;
    uint64_t alive;       /* generation of its live workers; 0: none */
    uint64_t acked_ms;    /* when the last heartbeat was sent that was answered */
    uint64_t answered_ms; /* the same, by the server: no guess after a pause */
    bool has_held;        /* a START that came before such an answer */
    struct ct_start held;
    uint64_t held_world;
    uint64_t paused_until_ms;
    uint64_t data_ms;        /* when its host last got something from the server */
    uint64_t unacknowledged; /* messages of this connection that its host has not got */
    bool is_shut;            /* its host got the end of the connection */
    bool is_fenced;          /* its guard has ended the workers */
    uint64_t up_ms;          /* nothing arrives before what was sent before */
    uint64_t down_ms;
    uint32_t starts;           /* STARTs it got */
    uint32_t waits;            /* WAITINGs */
    bool is_spare;             /* said the last WAITING */
    int refused;               /* code of a REFUSE */
    struct ct_start start;     /* the last */
    struct ct_verdict verdict; /* outcome 0: none */
    struct ct_stop stop;       /* the last; generation 0: none */
};

struct sim {
    struct round_settings settings;
    struct round *round; /* NULL: forgotten, or nobody came yet */
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
    bool has_gap; /* its journal was cut: generations and restarts may come again */
    struct journal_mark mark;
    struct ct_buf *batches;
    size_t batch_count, batch_capacity;
    uint64_t world;
    uint64_t tick_ms;
    size_t alive_count; /* nodes with live workers */
    uint64_t alive_world;
    uint64_t last_generation;
    uint64_t free_generation; /* its failure came after a node's death: costs nothing */
    uint32_t restart_count;   /* of the last START */
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
/* Node i connects and joins at that time. */
void sim_join_at(struct sim *sim, uint64_t at_ms, size_t i);
void sim_fault_at(struct sim *sim, uint64_t at_ms, size_t i, enum sim_fault fault,
                  int64_t code);
/* Until nothing happens any more or the time has come. */
void sim_run(struct sim *sim, uint64_t until_ms);
/* Uniform in [0, below). */
uint64_t sim_random(struct sim *sim, uint64_t below);
