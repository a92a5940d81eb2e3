/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/python_offsets.h"

#include <string.h>

/* Offsets in str and bytes. */
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

/* ---- 3.13 and later -------------------------------------------------------------------- */

enum field {
    FIELD_INTERPRETERS,
    FIELD_INTERPRETER_NEXT,
    FIELD_THREADS,
    FIELD_THREAD_NEXT,
    FIELD_THREAD_FRAME,
    FIELD_THREAD_NATIVE_ID,
    FIELD_FRAME_PREVIOUS,
    FIELD_FRAME_CODE,
    FIELD_FRAME_INSTR,
    FIELD_FRAME_OWNER,
    FIELD_CODE_FILENAME,
    FIELD_CODE_QUALNAME,
    FIELD_CODE_LINES,
    FIELD_CODE_FIRSTLINENO,
    FIELD_CODE_START,
    FIELD_BYTES_SIZE,
    FIELD_BYTES_DATA,
    FIELD_TEXT_STATE,
    FIELD_TEXT_LENGTH,
    FIELD_TEXT_ASCII,
    FIELDS
};

/* Where each version keeps them: as indexes of 8-byte numbers behind the cookie. The first two
 * numbers of each are the version and whether it has no global lock. */
static const struct layout {
    int minor;
    uint8_t at[FIELDS];
} layouts[] = {
    {13, {4, 7, 8, 20, 22, 24, 28, 29, 30, 32, 34, 36, 37, 38, 42, 64, 65, 67, 68, 69}},
    {14, {4, 7, 8, 23, 25, 27, 31, 32, 33, 35, 39, 41, 42, 43, 47, 74, 75, 77, 78, 79}},
};

static uint64_t read_number(const uint8_t *runtime, size_t index)
{
    uint64_t value;

    memcpy(&value, runtime + PYTHON_COOKIE_BYTES + 8 * index, sizeof value);
    return value;
}

static const struct layout *find_layout(const uint8_t *runtime)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (read_number(runtime, 0) >> 16 == (0x0300u | (unsigned)layouts[i].minor))
            return &layouts[i];
    return NULL;
}

static uint16_t take(const uint8_t *runtime, const struct layout *layout,
                     enum field field, bool *is_good)
{
    const uint64_t value = read_number(runtime, layout->at[field]);

    *is_good &= value <= UINT16_MAX;
    return (uint16_t)value;
}

bool python_offsets_read(struct python_offsets *out, const uint8_t *runtime,
                         size_t length)
{
    const struct layout *layout;
    bool is_good = true;

    if (length < PYTHON_DEBUG_OFFSETS_BYTES ||
        memcmp(runtime, "xdebugpy", PYTHON_COOKIE_BYTES) != 0 ||
        !(layout = find_layout(runtime)) || read_number(runtime, 1) != 0)
        return false;
#define TAKE(name) take(runtime, layout, FIELD_##name, &is_good)
    *out = (struct python_offsets){
        .minor = layout->minor,
        .lines = PYTHON_LOCATIONS,
        .interpreters = TAKE(INTERPRETERS),
        .interpreter_next = TAKE(INTERPRETER_NEXT),
        .threads = TAKE(THREADS),
        .thread_next = TAKE(THREAD_NEXT),
        .thread_frame = TAKE(THREAD_FRAME),
        .thread_native_id = TAKE(THREAD_NATIVE_ID),
        .frame_previous = TAKE(FRAME_PREVIOUS),
        .frame_code = TAKE(FRAME_CODE),
        .frame_instr = TAKE(FRAME_INSTR),
        .frame_owner = TAKE(FRAME_OWNER),
        .code_name = TAKE(CODE_QUALNAME),
        .code_filename = TAKE(CODE_FILENAME),
        .code_firstlineno = TAKE(CODE_FIRSTLINENO),
        .code_lines = TAKE(CODE_LINES),
        .code_start = TAKE(CODE_START),
        .text_length = TAKE(TEXT_LENGTH),
        .text_state = TAKE(TEXT_STATE),
        .text_ascii = TAKE(TEXT_ASCII),
        .bytes_size = TAKE(BYTES_SIZE),
        .bytes_data = TAKE(BYTES_DATA),
    };
#undef TAKE
    out->text_compact = (uint16_t)(out->text_ascii + 16); /* utf8_length and utf8 */
    return is_good;
}
