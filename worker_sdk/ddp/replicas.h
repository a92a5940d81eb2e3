/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all ranks still have the same parameters, bit by bit: parameters are never sent again,
 * so a flipped bit or a different update on one rank would stay unseen. */
#pragma once

#include "worker_sdk/ddp/device_checks.h"

/* Buffers may differ. Collective: 8 bytes of each rank, and 8 more for each parameter where there is a
 * difference. CTRUN_E_MISMATCH on all ranks. checks: those of a device, behind what `stream` has; NULL: the
 * parameters are memory of the host. */
int ct_ddp_compare_replicas(struct ctrun_group *group, const struct ctrun_param *params,
                            size_t count, struct ct_device_checks *checks, void *stream,
                            struct ctrun_error *err);
/* "rank 1", or "ranks 1, 4": those whose item is not as that of `model`. That of rank r is all[r * step]. */
void ct_ddp_list_unlike(char *text, size_t size, const uint64_t *all, size_t step,
                        size_t ranks, size_t model);
