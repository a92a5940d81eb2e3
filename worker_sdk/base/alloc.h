/* SPDX-License-Identifier: Apache-2.0 */
/* Heap memory: zeroed, overflow-checked, and failing on demand in tests.
 *
 * All memory of our code is allocated here and freed with free(), except secrets. */
#pragma once

#include <stddef.h>

/* `size` zeroed bytes (at least one), or NULL. Caller frees. */
void *ct_zalloc(size_t size);
/* `count` zeroed elements of `size` bytes; NULL also when the product overflows. */
void *ct_zalloc_array(size_t count, size_t size);
/* Grows or shrinks `old` (may be NULL) to count * size bytes; NULL leaves `old` alone. */
void *ct_realloc_array(void *old, size_t count, size_t size);
/* Copies of text; NULL when memory is short. Caller frees. */
char *ct_strdup(const char *text);
char *ct_strndup(const char *text, size_t length);

/* As ct_zalloc(), for secrets: not in core files. ct_secret_free() wipes and frees it and accepts
 * NULL. Costs a page and some system calls. */
void *ct_secret_zalloc(size_t size);
void ct_secret_free(void *memory);

/* Tests only: the n-th allocation from now (1 = the next) returns NULL once; 0 turns it off. */
void ct_alloc_fail_at(size_t n);
