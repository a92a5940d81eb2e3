/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of ctrunctl chaos: which faults a run gets, and when. Text, a line for each:
 *
 *     seed 7                                  # 0 when there is no such line
 *     end 10m                                 # required with `every`: no fault begins later
 *     at 10s        kill rank=any signal=KILL # KILL when no signal is given
 *     every 30s..60s stop rank=2 for=5s       # a time from..to is drawn from the seed
 *     at 40s        cut node=1 for=3s
 *     at 1m..2m     slow node=any by=100ms for=10s
 *     at 80s        full node=0 for=5s
 *     at 90s        throttle node=0 to=10M for=5s
 *
 * Pure: the same plan, seed and world make the same schedule. Each line draws
 * from its own sequence, so that a line added after it does not change its draws. */
#pragma once

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    CHAOS_PLAN_FILE_MAX_BYTES = 64 * 1024,
    CHAOS_PLAN_LINES_MAX = 256,   /* lines with a fault */
    CHAOS_PLAN_STEPS_MAX = 10000, /* of a schedule */
    CHAOS_STEP_TEXT_MAX = 96,
};

/* Times are measured from the start of the plan. */
struct chaos_line {
    bool repeats;            /* `every` */
    uint64_t from_ms, to_ms; /* when; with `every` the interval */
    bool is_any;             /* the target is drawn */
    struct ct_fault fault;
};

struct chaos_plan {
    uint64_t seed;
    uint64_t end_ms; /* 0: not known */
    int count;
    struct chaos_line lines[CHAOS_PLAN_LINES_MAX];
};

struct chaos_step {
    uint64_t at_ms;
    struct ct_fault fault;
};

/* text[length] may hold any bytes; `name` is the file's, for the error. 0, or CTRUN_E_USAGE: "NAME:LINE: what". */
int chaos_plan_parse(struct chaos_plan *out, const char *text, size_t length,
                     const char *name, struct ctrun_error *err);
/* The steps in order of time, for a world of that many ranks and nodes (> 0). Returns the number of
 * steps, and the caller frees *out; or CTRUN_E_USAGE: a target that the world does not have, or too
 * many steps; -ENOMEM. */
int chaos_plan_schedule(struct chaos_step **out, const struct chaos_plan *plan,
                        const char *name, uint32_t ranks, uint32_t nodes,
                        struct ctrun_error *err);
/* "stop rank=2 for=5000ms", in the syntax of a plan. */
void chaos_plan_format(char dst[CHAOS_STEP_TEXT_MAX], const struct ct_fault *fault);
