/* SPDX-License-Identifier: Apache-2.0 */
/* What the rendezvous server does next for the run's own etcd (--ha). Pure: facts in, one
 * action out; ha_lead.c does the action and reports the outcome.
 *
 *     WAITING ──enough nodes──> STARTING ──all members run──> SECURING ──> MOVING ──> SENDING
 *        ▲                         │ a member is lost, late      │           │           │
 *        └─────────────────────────┴──────── DROP ───────────────┴───────────┘           │
 *                                                                    every node follows  │
 *     ACTIVE <───────────────────────────────────────────────────────────────────────────┘
 *        │ a member is lost, another node is idle
 *        └──> REMOVING ──> ADDING ──> LEARNING ──> PROMOTING ──> ACTIVE
 *
 * Before SENDING nobody but this node knows of the etcd: the run continues as if there were none,
 * and after a failure it begins again with new members. From SENDING on there is no way back. A
 * server that is elected later begins in ACTIVE, with what etcd and the nodes tell it. */
#pragma once

#include <stdbool.h>

enum ha_state {
    HA_WAITING,   /* for as many nodes as members are wanted */
    HA_STARTING,  /* the members were named, and start */
    HA_SECURING,  /* users and passwords are being switched on */
    HA_MOVING,    /* the rendezvous moves: its place and its journal into etcd */
    HA_SENDING,   /* the nodes are told; each begins to look for the rendezvous there */
    HA_ACTIVE,    /* nothing is to be done */
    HA_REMOVING,  /* a lost member is taken out */
    HA_ADDING,    /* another node becomes a learner */
    HA_LEARNING,  /* it starts, and copies what there is */
    HA_PROMOTING, /* it becomes a voter */
    HA_STATES,
};

enum ha_action {
    HA_DO_NOTHING,
    HA_DO_PLAN, /* name members, tell them to start */
    HA_DO_DROP, /* no members any more: tell them to end */
    HA_DO_SECURE,
    HA_DO_MOVE,
    HA_DO_SEND, /* the plan as it is now */
    HA_DO_REMOVE,
    HA_DO_ADD,
    HA_DO_PROMOTE,
};

/* The result of the last action; only MOVE may still be under way at the next step. */
enum ha_outcome {
    HA_NONE,
    HA_DONE,
    HA_FAILED,
};

enum ha_learner {
    HA_NO_LEARNER,
    HA_LEARNER_STARTS,
    HA_LEARNER_RUNS,
    HA_LEARNER_LOST,
};

struct ha_facts {
    int wanted;    /* members: 3 or 5 */
    int voters;    /* in the plan */
    int running;   /* of them: their node is here and says that they run */
    int lost;      /* of them: not heard of for too long */
    int idle;      /* nodes that are here and could become members */
    int nodes;     /* that are here */
    int following; /* of them: learn from etcd where the rendezvous is */
    enum ha_learner learner;
    enum ha_outcome outcome;
    bool is_late; /* this state has taken longer than it should */
    bool may_try; /* it is time for another try of what failed */
};

/* Takes the first row of the table that fits: *state is the next one. */
enum ha_action ha_step(enum ha_state *state, const struct ha_facts *facts);

/* How many members may be lost now without the loss of the run's rendezvous; 0 unless every node
 * would find the next server. */
int ha_survives(enum ha_state state, const struct ha_facts *facts);

const char *ha_state_name(enum ha_state state);
