/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/memory.h"

#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    SHOWN_MAX = 6,
    KIB_PER_GIB = 1 << 20
};

int64_t memory_read_kib(pid_t pid)
{
    char text[128];
    unsigned long long pages = 0;

    (void)ct_small_file_of(text, sizeof text, pid, 0, "statm");
    if (sscanf(text, "%*u %llu", &pages) !=
        1) // NOLINT(cert-err34-c): the kernel's number
        return -1;
    return (int64_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE) / 1024);
}

void memory_add(struct memory_curve *curve, int64_t kib, uint64_t now_ms)
{
    if (kib <= 0)
        return;
    curve->kib[curve->count++ % MEMORY_SAMPLES] = kib < UINT32_MAX ? (uint32_t)kib
                                                                   : UINT32_MAX;
    curve->last_ms = now_ms;
}

int memory_count(const struct memory_curve *curve)
{
    return curve->count < MEMORY_SAMPLES ? (int)curve->count : MEMORY_SAMPLES;
}

uint32_t memory_get(const struct memory_curve *curve, int i)
{
    const uint32_t first = curve->count < MEMORY_SAMPLES ? 0 : curve->count;

    return curve->kib[(first + (uint32_t)i) % MEMORY_SAMPLES];
}

static void append(char *dst, double value, bool is_gib, const char *before)
{
    (void)ct_append(dst, MEMORY_TEXT_MAX, "%s%.*f", before, is_gib ? 1 : 0,
                    is_gib ? value / KIB_PER_GIB : value / 1024);
}

void memory_format(char *dst, const struct memory_curve *curve, uint64_t peak_kib,
                   uint64_t now_ms)
{
    const int count = memory_count(curve);
    const int shown = count < SHOWN_MAX ? count : SHOWN_MAX;
    const uint64_t span_ms = (uint64_t)(count - 1) * MEMORY_EVERY_MS +
                             (now_ms - curve->last_ms);
    uint64_t most = 0;
    bool is_gib;

    dst[0] = '\0';
    if (count == 0)
        return;
    for (int i = 0; i < count; i++)
        most = memory_get(curve, i) > most ? memory_get(curve, i) : most;
    is_gib = (most > peak_kib ? most : peak_kib) >= KIB_PER_GIB;
    (void)ct_format(dst, MEMORY_TEXT_MAX,
                    "in the last %llu s: ", (unsigned long long)(span_ms / 1000 + 1));
    for (int i = 0; i < shown; i++) /* the first, the last, and evenly between them */
        append(dst, memory_get(curve, shown > 1 ? i * (count - 1) / (shown - 1) : 0),
               is_gib, i ? " -> " : "");
    if (peak_kib > most)
        append(dst, (double)peak_kib, is_gib, " -> ");
    (void)ct_append(dst, MEMORY_TEXT_MAX, is_gib ? " GiB" : " MiB");
}
