/* SPDX-License-Identifier: Apache-2.0 */
/* How much time the first start and the restarts of a run took on this node: one line each for
 * people, and all of them for summary.json. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/watch/bill.h"

enum {
    BILLS_MAX = 16,        /* restarts that are kept; the others are counted */
    BILLS_RANKS_MAX = 256, /* of a node, in summary.json */
    BILLS_TEXT_MAX = 1024
};

struct bills_item {
    struct bill_sum sum;
    uint64_t generation; /* of the round that was started */
    uint32_t restart_count;
    int64_t lost_steps;  /* -1: not known */
    enum bill_of of;     /* bills_add() takes no recovery */
    bool is_whole;       /* it has all phases that earlier rounds had */
    bool is_one_of_many; /* the run has several nodes */
    bool is_over;        /* over the budget */
};

struct bills {
    bool has_start;
    struct bills_item start;
    struct bill_rank *ranks; /* of that start; owned; NULL: not known */
    int rank_count;          /* at most BILLS_RANKS_MAX; more are only counted: */
    int more_ranks;
    struct bills_item list[BILLS_MAX]; /* the first restarts */
    uint32_t count;                    /* all of them */
    uint32_t over;                     /* those over the budget */
    uint64_t longest_ms;
};

/* Copies the starts of the ranks; without memory they are not known. */
void bills_set_ranks(struct bills *bills, const struct bill_rank *ranks, int count);
void bills_deinit(struct bills *bills);
/* Decides is_over: budget_ms 0 is none. */
void bills_add(struct bills *bills, struct bills_item *item, uint64_t budget_ms);
/* "restart took 4.310 s: stop 0.310, ... first step 1.193; 7 steps lost; not known: detect" */
void bills_format(char dst[BILLS_TEXT_MAX], const struct bills_item *item);
