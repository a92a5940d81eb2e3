/* SPDX-License-Identifier: Apache-2.0 */
/* The source line of an instruction, from the table that a code object has of them. Pure; the table
 * may be anything: nothing is read beyond it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "agent/python/python_offsets.h"

/* `at`: of the instruction, in bytes from the start of the code; negative: before the first one.
 * `first`: the line that the code begins in. 0: none is known. Formats: PEP 626 and the notes on
 * line and location tables in CPython's Objects/. */
int python_lines_find(enum python_lines format, const uint8_t *table, size_t length,
                      int first, int64_t at);
