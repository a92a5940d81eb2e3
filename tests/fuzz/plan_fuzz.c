/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the lists of pieces of two ranks; the first byte says where the second
 * list begins. */
#include <stdint.h>
#include <stdlib.h>

#include "worker_sdk/ckpt/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_plan plan;
    struct ctrun_error err;
    uint8_t *flags;
    size_t cut;

    if (size < 1 || !(flags = calloc(2, size)))
        return 0;
    cut = data[0] < size ? data[0] : size - 1;
    ct_plan_init(&plan, 2);
    if (ct_plan_add(&plan, 0, data + 1, cut, &err) == 0 &&
        ct_plan_add(&plan, 1, data + 1 + cut, size - 1 - cut, &err) == 0 &&
        ct_plan_make(&plan, flags, size, &err) == 0) {
        size_t written = 0;
        for (size_t i = 0; i < 2 * size; i++)
            written += flags[i];
        if (written != plan.count)
            __builtin_trap();
    }
    ct_plan_deinit(&plan);
    free(flags);
    return 0;
}
