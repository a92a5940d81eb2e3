/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the stacks of several nodes together as they come: which nodes were asked, what each sent, and which have not
 * answered. Pure.
 *
 *     ASKED (a node) ... ── TEXT, TEXT, END of each, in any order between nodes ── all ended, or time is up */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/wire/message.h"

struct stacks_gather;

/* For one request. NULL: out of memory. */
struct stacks_gather *stacks_gather_create(uint32_t ticket);
void stacks_gather_destroy(struct stacks_gather *gather); /* NULL is fine */
uint32_t stacks_gather_ticket(const struct stacks_gather *gather);
/* Ignores messages of another request, or of a node that was not asked. True once all nodes that
 * were asked have ended. */
bool stacks_gather_on_stacks(struct stacks_gather *gather,
                             const struct ct_stacks *message);
/* Writes what has come, each node with a line of its own, and among them `own` (of this node); says
 * which nodes are missing after waited_ms. 0 or a code of ct_buf. */
int stacks_gather_write(const struct stacks_gather *gather, struct ct_buf *out,
                        uint32_t own_node, const char *own_host,
                        const struct ct_buf *own, uint64_t waited_ms);
