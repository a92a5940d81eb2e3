/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as a worker's crash record, which is decoded and described in words. */
#include <stdlib.h>
#include <string.h>

#include "agent/postmortem/crash_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct crash_record *record = calloc(1, sizeof *record);
    struct ct_crash *raw = calloc(1, sizeof *raw);
    char text[256];

    if (!record || !raw)
        abort();
    memcpy(raw, data, size < sizeof *raw ? size : sizeof *raw);
    if (crash_record_decode(raw, sizeof *raw, record) == 0) {
        if (record->frame_count > CT_CRASH_FRAMES_MAX ||
            record->module_count > CT_CRASH_FRAMES_MAX)
            abort();
        crash_record_describe(record, text, sizeof text);
        for (int i = 0; i < record->frame_count; i++) {
            crash_record_format_frame(record, i, text, sizeof text);
            if (!*text ||
                (i > 0 && crash_record_lookup(record, i) != record->frames[i].pc - 1))
                abort();
        }
    }
    free(raw);
    free(record);
    return 0;
}
