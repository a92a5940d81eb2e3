/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers hold of memory, looked at every few seconds as long as anybody runs. */
#include <string.h>

#include "agent/crew_private.h"
#include "agent/facts.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

void crew_on_memory(void *context)
{
    struct crew *crew = context;
    bool is_any = false;

    for (int i = 0; i < crew->count; i++) {
        struct worker *worker = &crew->workers[i];

        is_any |= worker->state == WORKER_RESTARTING;
        if (worker->state != WORKER_RUNNING)
            continue;
        memory_add(&worker->memory, memory_read_kib(worker->pid), ct_now_ms());
        is_any = true;
    }
    if (is_any)
        loop_timer_set(crew->memory_timer, MEMORY_EVERY_MS);
}

void crew_find_larger(const struct crew *crew, uint64_t bytes, char *dst, size_t size)
{
    char text[FACTS_SIZE_MAX];

    dst[0] = '\0';
    for (int i = 0; i < crew->count; i++) {
        const struct worker *worker = &crew->workers[i];
        const int64_t kib = worker->state == WORKER_RUNNING
                                ? memory_read_kib(worker->pid)
                                : -1;
        const size_t used = strlen(dst);

        if (kib <= 0 || (uint64_t)kib * 1024 <= bytes)
            continue;
        facts_format_size(text, (uint64_t)kib * 1024);
        if (ct_format(dst + used, size - used, "%srank %d %s%s", used ? ", " : "",
                      worker->rank, used ? "" : "holds ", text) < 0)
            dst[used] = '\0';
    }
}
