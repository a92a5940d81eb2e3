/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/python_offsets.h"

#include <string.h>

/* Of str and bytes. */
#define COMMON .text_length = 16, .text_state = 32, .bytes_size = 16, .bytes_data = 32
#define FRAME_OBJECTS                                                                  \
    COMMON, .has_frame_objects = true, .interpreters = 32, .threads = 8,               \
            .thread_next = 8, .thread_frame = 24, .frame_previous = 24,                \
            .frame_code = 32, .code_name = 112, .code_filename = 104,                  \
            .code_firstlineno = 40, .code_lines = 120, .text_ascii = 48,               \
            .text_compact = 72
#define CFRAMES                                                                        \
    COMMON, .lines = PYTHON_LOCATIONS, .has_cframe = true, .interpreters = 40,         \
            .thread_next = 8, .thread_frame = 56, .frame_instr = 56, .code_name = 128, \
            .code_filename = 112, .code_lines = 136

static const struct python_offsets known[] = {
    {.minor = 9, .lines = PYTHON_LNOTAB, FRAME_OBJECTS, .frame_instr = 104},
    {.minor = 10, .lines = PYTHON_LINETABLE, FRAME_OBJECTS, .frame_instr = 96},
    {.minor = 11,
     CFRAMES,
     .threads = 16,
     .thread_native_id = 160,
     .cframe_frame = 8,
     .frame_previous = 48,
     .frame_code = 32,
     .code_firstlineno = 72,
     .code_start = 184,
     .text_ascii = 48,
     .text_compact = 72},
    {.minor = 12,
     CFRAMES,
     .threads = 72,
     .thread_native_id = 144,
     .cframe_frame = 0,
     .frame_previous = 8,
     .frame_code = 0,
     .frame_owner = 70,
     .code_firstlineno = 68,
     .code_start = 192,
     .text_ascii = 40,
     .text_compact = 56},
};

const struct python_offsets *python_offsets_find(int minor)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].minor == minor)
            return &known[i];
    return NULL;
}

/* ---- 3.13 -------------------------------------------------------------------------------- */

/* Numbers of 8 bytes behind the cookie, as 3.13 numbers them. */
enum field {
    FIELD_VERSION = 0,
    FIELD_FREE_THREADED = 1,
    FIELD_INTERPRETERS = 4,
    FIELD_INTERPRETER_NEXT = 7,
    FIELD_THREADS = 8,
    FIELD_THREAD_NEXT = 20,
    FIELD_THREAD_FRAME = 22,
    FIELD_THREAD_NATIVE_ID = 24,
    FIELD_FRAME_PREVIOUS = 28,
    FIELD_FRAME_CODE = 29,
    FIELD_FRAME_INSTR = 30,
    FIELD_FRAME_OWNER = 32,
    FIELD_CODE_FILENAME = 34,
    FIELD_CODE_QUALNAME = 36,
    FIELD_CODE_LINES = 37,
    FIELD_CODE_FIRSTLINENO = 38,
    FIELD_CODE_START = 42,
    FIELD_BYTES_SIZE = 64,
    FIELD_BYTES_DATA = 65,
    FIELD_TEXT_STATE = 67,
    FIELD_TEXT_LENGTH = 68,
    FIELD_TEXT_ASCII = 69
};

static uint16_t take(const uint8_t *runtime, enum field field, bool *is_good)
{
    uint64_t value;

    memcpy(&value, runtime + PYTHON_COOKIE_BYTES + 8 * (size_t)field, sizeof value);
    *is_good &= value <= UINT16_MAX;
    return (uint16_t)value;
}

bool python_offsets_read(struct python_offsets *out, const uint8_t *runtime,
                         size_t length)
{
    bool is_good = true;
    uint64_t version;

    if (length < PYTHON_DEBUG_OFFSETS_BYTES ||
        memcmp(runtime, "xdebugpy", PYTHON_COOKIE_BYTES) != 0)
        return false;
    memcpy(&version, runtime + PYTHON_COOKIE_BYTES, sizeof version);
    if (version >> 16 != 0x030d)
        return false;
    *out = (struct python_offsets){
        .minor = 13,
        .lines = PYTHON_LOCATIONS,
        .interpreters = take(runtime, FIELD_INTERPRETERS, &is_good),
        .interpreter_next = take(runtime, FIELD_INTERPRETER_NEXT, &is_good),
        .threads = take(runtime, FIELD_THREADS, &is_good),
        .thread_next = take(runtime, FIELD_THREAD_NEXT, &is_good),
        .thread_frame = take(runtime, FIELD_THREAD_FRAME, &is_good),
        .thread_native_id = take(runtime, FIELD_THREAD_NATIVE_ID, &is_good),
        .frame_previous = take(runtime, FIELD_FRAME_PREVIOUS, &is_good),
        .frame_code = take(runtime, FIELD_FRAME_CODE, &is_good),
        .frame_instr = take(runtime, FIELD_FRAME_INSTR, &is_good),
        .frame_owner = take(runtime, FIELD_FRAME_OWNER, &is_good),
        .code_name = take(runtime, FIELD_CODE_QUALNAME, &is_good),
        .code_filename = take(runtime, FIELD_CODE_FILENAME, &is_good),
        .code_firstlineno = take(runtime, FIELD_CODE_FIRSTLINENO, &is_good),
        .code_lines = take(runtime, FIELD_CODE_LINES, &is_good),
        .code_start = take(runtime, FIELD_CODE_START, &is_good),
        .text_length = take(runtime, FIELD_TEXT_LENGTH, &is_good),
        .text_state = take(runtime, FIELD_TEXT_STATE, &is_good),
        .text_ascii = take(runtime, FIELD_TEXT_ASCII, &is_good),
        .bytes_size = take(runtime, FIELD_BYTES_SIZE, &is_good),
        .bytes_data = take(runtime, FIELD_BYTES_DATA, &is_good),
    };
    out->text_compact = (uint16_t)(out->text_ascii + 16); /* utf8_length and utf8 */
    return is_good && take(runtime, FIELD_FREE_THREADED, &is_good) == 0;
}
