/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of a --hosts run, from the host slot that each node was given. */
#pragma once

#include "launcher/config/rdzv_target.h"

/* Fills in nodes, run id, backend, endpoint and order. 1: done; 0: there is no host slot, or only
 * one node; or a code. */
int rdzv_host_slot_resolve(const struct rdzv_target *to, const struct options *options,
                           struct ctrun_error *err);

/* Refuses what contradicts --hosts with `total` hosts. 0 or CTRUN_E_USAGE. */
int rdzv_host_slot_check(const struct options *options, const struct nnodes *nodes,
                         int total, struct ctrun_error *err);
