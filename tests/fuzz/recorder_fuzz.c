/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the answer of a flight recorder. */
#include <stdlib.h>
#include <string.h>

#include "agent/recorder/json_recorder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t size)
{
    if (strnlen(text, size) == size)
        abort();
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            abort();
}

static void check_call(const struct recorder_call *call)
{
    check_text(call->group, sizeof call->group);
    check_text(call->title, sizeof call->title);
    check_text(call->op, sizeof call->op);
    check_text(call->sizes, sizeof call->sizes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct recorder_view view;
    struct straggler_call *calls;
    struct ct_buf trace;
    const int count = json_recorder_read_calls(&calls, "x", (const char *)data, size);

    if (count > STRAGGLER_CALLS_MAX)
        abort();
    for (int i = 0; i < count; i++)
        if (calls[i].number <= 0)
            abort();
    free(calls);
    ct_buf_init(&trace, 1 << 20);
    (void)json_recorder_add_trace(&trace, 0, 16, 1, (const char *)data, size, true);
    ct_buf_deinit(&trace);
    if (json_recorder_read(&view, "x", (const char *)data, size) < 0)
        return 0;
    check_call(&view.oldest);
    check_call(&view.newest);
    if (view.group_count < 0 || view.group_count > RECORDER_GROUPS_MAX)
        abort();
    for (int i = 0; i < view.group_count; i++) {
        check_text(view.groups[i].name, sizeof view.groups[i].name);
        if (view.groups[i].entered < 0)
            abort();
    }
    return 0;
}
