/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/bill.h"

#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

static const char *const names[BILL_PHASES] = {
    [BILL_DETECT] = "detect",  [BILL_DECIDE] = "decide",
    [BILL_STOP] = "stop",      [BILL_MEET] = "meet",
    [BILL_START] = "start",    [BILL_IMPORT] = "import",
    [BILL_INIT] = "init",      [BILL_FIRST_STEP] = "first step",
    [BILL_REFORM] = "re-form", [BILL_NEXT_STEP] = "next step",
    [BILL_JOIN] = "join",
};

const char *bill_of_name(enum bill_of of)
{
    static const char *const texts[] = {[BILL_OF_START] = "start",
                                        [BILL_OF_RESTART] = "restart",
                                        [BILL_OF_RECOVERY] = "recovery"};

    return texts[of];
}

void bill_begin(struct bill *bill, enum bill_phase first, uint64_t at_ms)
{
    *bill = (struct bill){
        .begun_ms = at_ms, .first = first, .others = ~0u << BILL_REFORM};
    for (int phase = 0; phase < BILL_PHASES; phase++)
        bill->rank[phase] = -1;
}

void bill_begin_recovery(struct bill *bill, enum bill_phase first, uint64_t at_ms)
{
    bill_begin(bill, first, at_ms);
    bill->others = (1u << BILL_REFORM) - (1u << BILL_STOP);
}

void bill_end_phase(struct bill *bill, enum bill_phase phase, uint64_t at_ms, int rank)
{
    bill->end_ms[phase] = at_ms > bill->begun_ms ? at_ms : bill->begun_ms;
    bill->rank[phase] = rank;
    /* A worker that has imported was started, however late the agent noted the start. */
    if (phase == BILL_IMPORT && bill->end_ms[BILL_START] > bill->end_ms[phase])
        bill->end_ms[BILL_START] = bill->end_ms[phase];
}

uint64_t bill_import_end(uint64_t hello_ms, uint64_t first_step_ms)
{
    return first_step_ms > 0 && first_step_ms < hello_ms ? first_step_ms : hello_ms;
}

unsigned bill_known(const struct bill *bill)
{
    unsigned known = 0;

    for (int phase = 0; phase < BILL_PHASES; phase++)
        if (bill->end_ms[phase] > 0)
            known |= 1u << phase;
    return known;
}

/* ---- The sum ------------------------------------------------------------------------- */

/* Inserts a part and its end after all parts that ended no later. */
static void insert(struct bill_sum *sum, uint64_t ends[BILL_PHASES],
                   const struct bill_part *part, uint64_t end_ms)
{
    int at = sum->count++;

    for (; at > 0 && ends[at - 1] > end_ms; at--) {
        ends[at] = ends[at - 1];
        sum->parts[at] = sum->parts[at - 1];
    }
    ends[at] = end_ms;
    sum->parts[at] = *part;
}

/* A phase whose end is not known is one part together with the next phase whose end is known. Ends
 * may come in another order than the phases, so parts are sorted by end: each part lasts from the
 * previous end to its own, and all parts add up to the total. */
void bill_add_up(struct bill_sum *out, const struct bill *bill)
{
    uint64_t ends[BILL_PHASES];
    uint64_t before_ms = bill->begun_ms;
    unsigned pending = 0;

    *out = (struct bill_sum){0};
    for (int phase = (int)bill->first; phase < BILL_PHASES; phase++) {
        const struct bill_part part = {.phases = pending | 1u << phase,
                                       .rank = bill->rank[phase]};

        if (bill->others & 1u << phase)
            continue;
        pending = part.phases;
        if (bill->end_ms[phase] == 0)
            continue;
        insert(out, ends, &part, bill->end_ms[phase]);
        pending = 0;
    }
    for (int i = 0; i < out->count; i++) {
        out->parts[i].ms = ends[i] - before_ms;
        before_ms = ends[i];
    }
    out->total_ms = before_ms - bill->begun_ms;
    out->unknown = pending | (bill->first == BILL_DECIDE ? 1u << BILL_DETECT : 0);
}

const struct bill_part *bill_longest(const struct bill_sum *sum)
{
    const struct bill_part *longest = NULL;

    for (int i = 0; i < sum->count; i++)
        if (!longest || sum->parts[i].ms > longest->ms)
            longest = &sum->parts[i];
    return longest;
}

int64_t bill_lost_steps(int64_t last, int64_t first)
{
    if (last < 0 || first < 0)
        return -1;
    return last < first ? 0 : last - first + 1;
}

/* ---- Text ---------------------------------------------------------------------------- */

void bill_format_phases(char *dst, size_t size, unsigned phases, const char *between)
{
    *dst = '\0';
    for (int phase = 0; phase < BILL_PHASES; phase++)
        if (phases & 1u << phase)
            (void)ct_append_item(dst, size, between, "%s", names[phase]);
}

void bill_format_parts(char *dst, size_t size, const struct bill_sum *sum)
{
    char phases[128];

    *dst = '\0';
    for (int i = 0; i < sum->count; i++) {
        bill_format_phases(phases, sizeof phases, sum->parts[i].phases, " and ");
        (void)ct_append_item(dst, size, ", ", "%s %.3f", phases,
                             (double)sum->parts[i].ms / 1000);
    }
}

static void write_number(struct ct_writer *out, long long number)
{
    char text[24];

    (void)ct_format(text, sizeof text, "%lld", number);
    ct_write_text(out, text);
}

void bill_write_phases(struct ct_writer *out, unsigned phases)
{
    const char *before = "[";

    for (int phase = 0; phase < BILL_PHASES; phase++) {
        if (!(phases & 1u << phase))
            continue;
        ct_write_text(out, before);
        ct_json_write_str(out, names[phase]);
        before = ",";
    }
    ct_write_text(out, *before == '[' ? "[]" : "]");
}

static void begin_part(struct ct_writer *out, const struct bill_sum *sum, int i)
{
    ct_write_text(out, i > 0 ? ",{\"phases\":" : "{\"phases\":");
    bill_write_phases(out, sum->parts[i].phases);
    ct_write_text(out, ",\"ms\":");
    write_number(out, (long long)sum->parts[i].ms);
}

void bill_write_rank(struct ct_writer *out, const struct bill_rank *rank)
{
    const struct bill_sum *sum = &rank->sum;
    const struct bill_part *slowest = bill_longest(sum);

    ct_write_text(out, "{\"rank\":");
    write_number(out, rank->rank);
    ct_write_text(out, ",\"total_ms\":");
    write_number(out, (long long)sum->total_ms);
    ct_write_text(out, ",\"parts\":[");
    for (int i = 0; i < sum->count; i++) {
        begin_part(out, sum, i);
        ct_write_text(out, "}");
    }
    ct_write_text(out, "],\"unknown\":");
    bill_write_phases(out, sum->unknown);
    ct_write_text(out, ",\"slowest\":");
    bill_write_phases(out, slowest ? slowest->phases : 0);
    ct_write_text(out, "}");
}

void bill_write_parts(struct ct_writer *out, const struct bill_sum *sum)
{
    ct_write_text(out, "[");
    for (int i = 0; i < sum->count; i++) {
        begin_part(out, sum, i);
        ct_write_text(out, ",\"rank\":");
        if (sum->parts[i].rank < 0)
            ct_write_text(out, "null");
        else
            write_number(out, sum->parts[i].rank);
        ct_write_text(out, "}");
    }
    ct_write_text(out, "]");
}
