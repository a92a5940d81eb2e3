/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t fail_countdown;

/* True when this very allocation is the one that a test wants to fail. */
static int fails_now(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return 0;
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

void ct_alloc_fail_at(size_t n)
{
    atomic_store(&fail_countdown, n);
}

void *ct_zalloc(size_t size)
{
    return ct_zalloc_array(size ? size : 1, 1);
}

void *ct_zalloc_array(size_t count, size_t size)
{
    if (fails_now())
        return NULL;
    return calloc(count ? count : 1, size ? size : 1); /* calloc checks the product */
}

void *ct_realloc_array(void *old, size_t count, size_t size)
{
    if (fails_now())
        return NULL;
    return reallocarray(old, count ? count : 1, size ? size : 1);
}

char *ct_strndup(const char *text, size_t length)
{
    char *copy = ct_zalloc(length + 1);

    if (copy)
        memcpy(copy, text, length);
    return copy;
}

char *ct_strdup(const char *text)
{
    return ct_strndup(text, strlen(text));
}
