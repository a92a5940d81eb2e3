/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of strings that end with NULL, as argv and environ are. */
#pragma once

#include <stddef.h>

/* NULL counts as an empty list. */
size_t ct_str_list_count(char *const *list);
/* The list and its strings, all owned by the caller: ct_str_list_free(). NULL: out of memory. */
char **ct_str_list_copy(char *const *list);
void ct_str_list_free(char **list);
