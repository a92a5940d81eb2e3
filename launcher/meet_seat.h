/* SPDX-License-Identifier: Apache-2.0 */
/* How the nodes of a --hosts run meet: by the seat that each was given. */
#ifndef LAUNCHER_MEET_SEAT_H
#define LAUNCHER_MEET_SEAT_H

#include "launcher/config.h"

/* Fills in nodes, run id, backend, endpoint and order. 1: done; 0: there is no seat, or only
 * one node; or a code. */
int meet_seat_resolve(struct config *config, const struct options *options,
                      struct ctrun_error *err);

/* Refuses what contradicts --hosts with `total` hosts. 0 or CTRUN_E_USAGE. */
int meet_seat_check(const struct options *options, const struct nnodes *nodes,
                    int total, struct ctrun_error *err);

#endif
