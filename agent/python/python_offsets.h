/* SPDX-License-Identifier: Apache-2.0 */
/* Where CPython keeps its threads and frames in memory: a table of the versions that do not say it,
 * 3.9 to 3.12, and what 3.13 and 3.14 say themselves at the start of _PyRuntime. The figures are those of
 * offsetof() over each version's own headers, for 64 bits; they hold for all its patch releases. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PYTHON_COOKIE_BYTES = 8,
    /* From the start of _PyRuntime, of 3.13 and 3.14: what python_offsets_read() needs. */
    PYTHON_DEBUG_OFFSETS_BYTES = 656
};

enum python_lines {
    PYTHON_LNOTAB,    /* 3.9 */
    PYTHON_LINETABLE, /* 3.10 */
    PYTHON_LOCATIONS  /* 3.11 and later */
};

struct python_offsets {
    int minor; /* of 3.MINOR */
    enum python_lines lines;
    bool
        has_frame_objects; /* 3.9, 3.10: frames are objects, and know an index in place of an address */
    uint16_t interpreters, interpreter_next, threads;
    uint16_t thread_next, thread_frame, thread_native_id; /* native_id 0: not known */
    uint16_t cframe_frame; /* of what thread_frame points at; has_cframe */
    bool has_cframe;
    uint16_t frame_previous, frame_code, frame_instr, frame_owner; /* owner 0: none */
    uint16_t code_name, code_filename, code_firstlineno, code_lines, code_start;
    uint16_t text_length, text_state, text_ascii,
        text_compact; /* where the characters begin */
    uint16_t bytes_size, bytes_data;
};

/* Of 3.MINOR; NULL: not known, or its memory says it. Static. */
const struct python_offsets *python_offsets_find(int minor);
/* From _PyRuntime's first bytes in a 3.13 or 3.14. False: there are none of a version that is known, or it is one
 * without a global lock. */
bool python_offsets_read(struct python_offsets *out, const uint8_t *runtime,
                         size_t length);
