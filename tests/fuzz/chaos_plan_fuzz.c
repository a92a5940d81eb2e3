/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as a plan of ctrunctl chaos. A plan that parses gives a schedule whose
 * targets exist, whose times are in order, and whose faults can be parsed again. */
#include <stdlib.h>
#include <string.h>

#include "launcher/options/chaos_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    RANKS = 8,
    NODES = 2,
    LOOKED_AT = 100
};

static void check(const struct chaos_step *steps, int count)
{
    static struct chaos_plan again;
    char text[CHAOS_STEP_TEXT_MAX + 8] = "at 1s ";
    struct ctrun_error err;

    for (int i = 0; i < count && i < LOOKED_AT; i++) {
        if (steps[i].fault.target < 0 || steps[i].fault.target >= RANKS ||
            (i > 0 && steps[i].at_ms < steps[i - 1].at_ms))
            abort();
        chaos_plan_format(text + 6, &steps[i].fault);
        if (chaos_plan_parse(&again, text, strlen(text), "f", &err) < 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct chaos_plan plan;
    struct chaos_step *steps;
    struct ctrun_error err;
    int count;

    if (chaos_plan_parse(&plan, (const char *)data, size, "f", &err) < 0)
        return 0;
    count = chaos_plan_schedule(&steps, &plan, "f", RANKS, NODES, &err);
    if (count >= 0)
        check(steps, count);
    free(steps);
    return 0;
}
