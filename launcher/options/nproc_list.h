/* SPDX-License-Identifier: Apache-2.0 */
/* --nproc-per-node for nodes that differ: the workers of each, in the order of the nodes.
 *
 *     list = item *( "," item )
 *     item = N           N workers on the next node
 *          / N "x" K     N workers on each of the next K nodes
 *
 * "8,8,2x3" is five nodes: 8, 8, 2, 2, 2. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/base/error.h"

/* False for the two forms that torchrun knows: one number, or a word. */
bool nproc_list_is(const char *text);
/* Returns how many nodes the list has, and sets *workers to the workers of node `index`, 0 where
 * the list is shorter. -EINVAL when the list is malformed. */
int nproc_list_read(const char *text, int index, int *workers, struct ctrun_error *err);
/* 0 when a list for `listed` nodes fits a run of at most `max` of `total` nodes (0: not known;
 * spares count as nodes). Else CTRUN_E_USAGE. */
int nproc_list_check(const char *text, int listed, int max, int total,
                     struct ctrun_error *err);
