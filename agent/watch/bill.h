/* SPDX-License-Identifier: Apache-2.0 */
/* What a restart costs, and the first start: the time from its first moment to the last one that is known,
 * cut where something was seen to happen. So the parts add up to the whole, and a phase whose end nothing
 * tells is no part of its own: it goes with the next one whose end is known. Pure.
 *
 *     failed ─detect─ seen ─decide─ decided ─stop─ workers gone ─meet─ START ─start─ exec or fork done
 *            ─import─ in the store or at the agent ─init─ last asked the store ─first step─ told
 *
 * Decision and stop continue side by side: whichever ends first comes first. */
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
    BILL_PHASES
};

struct bill {
    uint64_t begun_ms;
    enum bill_phase first;        /* the phases before are no part of it */
    uint64_t end_ms[BILL_PHASES]; /* 0: not known */
    int rank[BILL_PHASES];        /* who ended it, the last of all; -1: not told */
};

struct bill_part {
    unsigned
        phases; /* a bit each: several where the ends of the earlier ones are not known */
    uint64_t ms;
    int rank; /* of the last of them */
};

struct bill_sum {
    uint64_t total_ms; /* of all parts, exactly */
    int count;
    struct bill_part parts[BILL_PHASES]; /* as they followed one another */
    unsigned unknown;                    /* phases that nothing is known of */
};

/* A restart whose failure is known to be of `at_ms` begins with BILL_DETECT, one that is only known to be
 * seen then with BILL_DECIDE, a first start with BILL_MEET. */
void bill_begin(struct bill *bill, enum bill_phase first, uint64_t at_ms);
/* The last call counts; rank -1: not known. A time before the beginning counts as the beginning. BILL_IMPORT is
 * that of all workers: it moves an end of BILL_START that is later. */
void bill_end_phase(struct bill *bill, enum bill_phase phase, uint64_t at_ms, int rank);
/* When one worker had imported its program: at its first word to the agent (0: none came), or at its first step
 * (0: none told) when that is earlier. The worker dates its steps, the agent a word only when it reads it: without
 * this the import could end after the step that needs it. 0: not known. */
uint64_t bill_import_end(uint64_t hello_ms, uint64_t first_step_ms);
/* Bits of the phases whose end is known. */
unsigned bill_known(const struct bill *bill);
void bill_add_up(struct bill_sum *out, const struct bill *bill);
/* The longest part; NULL when there is none. Borrowed. */
const struct bill_part *bill_longest(const struct bill_sum *sum);
/* Steps that have to be made again, where `last` was reported before and `first` is the first that was told
 * after; -1 when one of them is (not told). */
int64_t bill_lost_steps(int64_t last, int64_t first);

/* "stop 0.310, meet 0.002, import and init 2.700"; cut is fine. */
void bill_format_parts(char *dst, size_t size, const struct bill_sum *sum);
/* "import and init", with " and " between them. */
void bill_format_phases(char *dst, size_t size, unsigned phases, const char *between);
/* [{"phases":["import","init"],"ms":2700,"rank":3}], rank null where it is not told */
void bill_write_parts(struct ct_writer *out, const struct bill_sum *sum);
/* ["import","init"] */
void bill_write_phases(struct ct_writer *out, unsigned phases);
