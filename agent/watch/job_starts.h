/* SPDX-License-Identifier: Apache-2.0 */
/* The starts of a batch system's job before this one: it was requeued each time. */
#pragma once

#include <stdint.h>

struct job_starts {
    uint32_t requeues; /* so many starts */
    uint64_t restarts; /* of workers, in these starts */
    uint32_t unknown;  /* starts that have left no summary.json: not in the sum */
};
