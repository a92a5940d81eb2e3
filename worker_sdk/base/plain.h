/* SPDX-License-Identifier: Apache-2.0 */
/* Makes text from another machine or user safe for a terminal, a log and JSON. All text in a frame
 * is made plain when it is read (bytes.h: ct_read_str); tests/lint/foreign.sh checks this. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces each byte by '?' of: control characters (also C1, and those that change the direction of
 * text) and invalid UTF-8. keeps_lines: newlines and tabs stay. */
void ct_make_plain(char *text, bool keeps_lines);
/* The character at `at`, which ends with a NUL, *length bytes long. UINT32_MAX: it is no UTF-8 (RFC 3629, table 3-7). */
uint32_t ct_utf8_decode(const uint8_t *at, size_t *length);
/* Whether all of the text is UTF-8. */
bool ct_is_utf8(const char *text);
