/* SPDX-License-Identifier: Apache-2.0 */
/* The source line of an instruction, from the line table of its code object. Pure; the table may
 * hold anything: nothing is read beyond it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "agent/python/python_offsets.h"

/* `at`: offset of the instruction from the start of the code, in bytes; negative: before the first
 * instruction. `first`: the line in which the code begins. Returns 0 if no line is known. Formats:
 * PEP 626 and the notes on line and location tables in CPython's Objects/. */
int python_lines_find(enum python_lines format, const uint8_t *table, size_t length,
                      int first, int64_t at);
