/* SPDX-License-Identifier: Apache-2.0 */
/* How long a restart or the first start took: the time from the first to the last known moment, divided at
 * the known ends of phases. So the parts add up to the total; a phase whose end is not known is one part
 * together with the next phase whose end is known. Pure.
 *
 *     failed ─detect─ seen ─decide─ decided ─stop─ workers gone ─meet─ START ─start─ exec or fork done
 *            ─import─ in the store or at the agent ─init─ last asked the store ─first step─ reported
 *
 * Decision and stop continue side by side: whichever ends first comes first.
 *
 * A recovery, in which the other workers continue (--survive), likewise:
 *
 *     failed ─detect─ seen ─decide─ who continues ─re-form, next step─ made by all members ─join─ a new worker has joined */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/bytes.h"

enum bill_phase {
    BILL_DETECT,
    BILL_DECIDE,
    BILL_STOP,
    BILL_MEET,
    BILL_START,
    BILL_IMPORT,
    BILL_INIT,
    BILL_FIRST_STEP,
    /* of a recovery, behind BILL_DETECT and BILL_DECIDE */
    BILL_REFORM,
    BILL_NEXT_STEP,
    BILL_JOIN,
    BILL_PHASES
};

enum bill_of {
    BILL_OF_START, /* the first one */
    BILL_OF_RESTART,
    BILL_OF_RECOVERY /* the other workers have continued (--survive) */
};

struct bill {
    uint64_t begun_ms;
    enum bill_phase first;        /* the earlier phases are not part of this start */
    unsigned others;              /* bits of phases that are not part of it either */
    uint64_t end_ms[BILL_PHASES]; /* 0: not known */
    int rank[BILL_PHASES];        /* the rank whose end was the last; -1: not known */
};

struct bill_part {
    unsigned
        phases; /* a bit each: several where the ends of earlier phases are not known */
    uint64_t ms;
    int rank; /* of the last phase */
};

struct bill_sum {
    uint64_t total_ms; /* sum of all parts, exactly */
    int count;
    struct bill_part parts[BILL_PHASES]; /* in the order of their ends */
    unsigned unknown;                    /* phases whose end is not known */
};

/* The start of one worker, from BILL_START on. */
struct bill_rank {
    int rank;
    struct bill_sum sum;
};

/* "start", "restart", "recovery" */
const char *bill_of_name(enum bill_of of);
/* A restart begins with BILL_DETECT if the time of the failure is known, with BILL_DECIDE if only
 * the time when it was seen is known; a first start begins with BILL_MEET. */
void bill_begin(struct bill *bill, enum bill_phase first, uint64_t at_ms);
/* The same for a recovery. */
void bill_begin_recovery(struct bill *bill, enum bill_phase first, uint64_t at_ms);
/* The last call counts; rank -1: not known. A time before the beginning counts as the beginning.
 * BILL_IMPORT is the end of all workers' imports: a later end of BILL_START is moved to it. */
void bill_end_phase(struct bill *bill, enum bill_phase phase, uint64_t at_ms, int rank);
/* When one worker had imported its program: at its first message to the agent (0: none came), or at
 * its first step (0: none reported) if that is earlier. The worker sets the time of its steps, but
 * the agent sets the time of a message when it reads it: so the import could seem to end after the
 * first step. 0: not known. */
uint64_t bill_import_end(uint64_t hello_ms, uint64_t first_step_ms);
/* Bits of the phases whose end is known. */
unsigned bill_known(const struct bill *bill);
void bill_add_up(struct bill_sum *out, const struct bill *bill);
/* The longest part; NULL when there is none. Borrowed. */
const struct bill_part *bill_longest(const struct bill_sum *sum);
/* Steps that have to be repeated: `last` was reported before the restart, `first` is the first one
 * after it; -1 if one of them is (not known). */
int64_t bill_lost_steps(int64_t last, int64_t first);

/* "stop 0.310, meet 0.002, import and init 2.700"; cut is fine. */
void bill_format_parts(char *dst, size_t size, const struct bill_sum *sum);
/* "import and init", with " and " between them. */
void bill_format_phases(char *dst, size_t size, unsigned phases, const char *between);
/* [{"phases":["import","init"],"ms":2700,"rank":3}], rank null if it is not known */
void bill_write_parts(struct ct_writer *out, const struct bill_sum *sum);
/* {"rank":3,"total_ms":2710,"parts":[{"phases":["start"],"ms":10},...],"unknown":[],"slowest":["import"]} */
void bill_write_rank(struct ct_writer *out, const struct bill_rank *rank);
/* ["import","init"] */
void bill_write_phases(struct ct_writer *out, unsigned phases);
