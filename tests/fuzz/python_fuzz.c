/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the memory of a Python process of each version; _PyRuntime is at 0. */
#include <stdlib.h>
#include <string.h>

#include "agent/python/python_frames.h"
#include "tests/fuzz/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t size)
{
    if (strnlen(text, size) == size || *text == '\0')
        abort();
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            abort();
}

static void check_thread(void *context, const struct python_thread *thread)
{
    (void)context;
    if (thread->count < 0 || thread->count > PYTHON_FRAMES_MAX)
        abort();
    for (int i = 0; i < thread->count; i++) {
        check_text(thread->frames[i].function, PYTHON_NAME_MAX);
        check_text(thread->frames[i].file, PYTHON_FILE_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct python_room room;
    struct bytes bytes = {data, size};
    const struct python_memory memory = {.context = &bytes, .read = bytes_read};
    struct python_offsets offsets;

    for (int minor = 9; python_offsets_find(minor); minor++)
        (void)python_frames_walk(&memory, python_offsets_find(minor), 0, &room,
                                 check_thread, NULL);
    if (python_offsets_read(&offsets, data, size))
        (void)python_frames_walk(&memory, &offsets, 0, &room, check_thread, NULL);
    return 0;
}
