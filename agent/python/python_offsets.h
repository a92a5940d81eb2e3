/* SPDX-License-Identifier: Apache-2.0 */
/* Where CPython keeps its threads and frames in memory: a table for 3.9 to 3.12; 3.13 and 3.14 have such a
 * table of their own at the start of _PyRuntime. The numbers come from offsetof() with each version's headers,
 * for 64 bits; they hold for all its patch releases. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PYTHON_COOKIE_BYTES = 8,
    /* The bytes from the start of _PyRuntime that python_offsets_read() needs, for 3.13 and
     * 3.14. */
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
        has_frame_objects; /* 3.9, 3.10: frames are objects, and have an index, not an address */
    uint16_t interpreters, interpreter_next, threads;
    uint16_t thread_next, thread_frame, thread_native_id; /* native_id 0: not known */
    uint16_t cframe_frame; /* offset in what thread_frame points at, if has_cframe */
    bool has_cframe;
    uint16_t frame_previous, frame_code, frame_instr, frame_owner; /* owner 0: none */
    uint16_t code_name, code_filename, code_firstlineno, code_lines, code_start;
    uint16_t text_length, text_state, text_ascii,
        text_compact; /* where the characters begin */
    uint16_t bytes_size, bytes_data;
};

/* The table of 3.MINOR; NULL: not known, or the version has its own table. Static. */
const struct python_offsets *python_offsets_find(int minor);
/* Reads the table from _PyRuntime's first bytes in a 3.13 or 3.14. False: not a known version, or
 * one without a global lock. */
bool python_offsets_read(struct python_offsets *out, const uint8_t *runtime,
                         size_t length);
