/* SPDX-License-Identifier: Apache-2.0 */
/* Text from another machine or user, made fit for a terminal, a log and JSON. Whatever a frame
 * brings passes here before anybody sees it (bytes.h: ct_read_str); tests/lint/foreign.sh holds
 * that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Replaces by '?', byte for byte: control characters (those of C1 and those that turn the
 * direction of text, too) and what is no UTF-8. keeps_lines: newlines and tabs stay. */
void ct_make_plain(char *text, bool keeps_lines);
/* The character at `at`, which ends with a NUL, *length bytes long. UINT32_MAX: it is no UTF-8 (RFC 3629, table 3-7). */
uint32_t ct_utf8_decode(const uint8_t *at, size_t *length);
