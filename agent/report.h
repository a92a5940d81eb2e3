/* SPDX-License-Identifier: Apache-2.0 */
/* The status of this node for `ctrunctl status`, as one JSON object (ctrunctl(1) lists its keys). */
#pragma once

#include "agent/agent.h"
#include "agent/watch/straggler.h"
#include "agent/worker/worker_group.h"

struct report {
    const struct agent_options *options;
    const char *state;
    const struct ct_start *start;     /* generation 0: no round yet */
    const struct ct_waiting *waiting; /* max_nodes 0: no node is waited for */
    const struct worker_group *group;
    uint64_t born_ms;
    const struct ct_ha_plan *ha_plan;         /* epoch 0: none came */
    const struct straggler_report *straggler; /* NULL: none is reported */
    const struct straggler_report *slow_node; /* NULL: none is reported */
    const struct agent_absent *absent;        /* NULL: none is reported */
    const struct ct_reload *reload;           /* NULL: none was taken */
    bool reload_waits;                        /* for the next round */
    bool is_linked;                           /* to the rendezvous, now */
    uint32_t min_nodes, max_nodes;            /* of the run */
    const char
        *rendezvous; /* address of the server that we are linked to; empty: none */
};

/* Appends the JSON. 0, -ENOBUFS, -ENOMEM. */
int report_format(struct ct_buf *out, const struct report *report);
