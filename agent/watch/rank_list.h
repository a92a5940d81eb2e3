/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as readable text: "0-3, 5". */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* `ranks` rise. Empty when it does not fit. */
void rank_list_format(char *dst, size_t size, const int *ranks, int count);
/* Adds a rank to such a text. False, and nothing changes: it has it, or there is no room. */
bool rank_list_add(char *text, size_t size, int rank);
