/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/facts.h"

#include "worker_sdk/base/str.h"

enum {
    FACT_MAX_BYTES = 640 /* room for a path and a remark */
};

void facts_add(struct ct_failure *failure, enum ct_fact_key key, const char *fmt, ...)
{
    char text[FACT_MAX_BYTES];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args); /* cut is fine */
    va_end(args);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    /* the header promises one line */
    (void)ct_facts_add(&failure->facts, (uint8_t)key, text);
}

void facts_format_size(char *dst, uint64_t bytes)
{
    const uint64_t mib = bytes >> 20;

    if (mib < 10 * 1024)
        (void)ct_format(dst, FACTS_SIZE_MAX, "%llu MiB", (unsigned long long)mib);
    else
        (void)ct_format(dst, FACTS_SIZE_MAX, "%.1f GiB", (double)bytes / (1 << 30));
}
