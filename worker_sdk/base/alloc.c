/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    WIPE_PAGES = 64 /* wiped in pieces of this size */
};

/* 0: no allocation fails; n: the n-th from now fails. Concurrent threads each take one number, so
 * exactly one fails. */
static atomic_size_t fail_countdown;

/* True if this allocation is the one that must fail in a test. */
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

/* Memory referenced from secret pages is no leak: the sanitizer must be told about these pages. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define register_root(what, memory, size) __lsan_##what##_root_region(memory, size)
#else
#define register_root(what, memory, size) ((void)0)
#endif

/* The header in front of the memory: its size, padded so that the memory stays aligned. */
union secret_head {
    size_t size;
    max_align_t align;
};

void *ct_secret_zalloc(size_t size)
{
    union secret_head *head;

    if (fails_now() || size > SIZE_MAX - sizeof *head)
        return NULL;
    size += sizeof *head;
    head = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (head == MAP_FAILED)
        return NULL;
    (void)madvise(head, size, MADV_DONTDUMP); /* every supported kernel has it */
    head->size = size;
    register_root(register, head, size);
    return head + 1;
}

/* Wipes only pages that were used; wiping the others would allocate them. */
static void wipe(void *memory, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char used[WIPE_PAGES];

    for (size_t at = 0; at < size; at += page * WIPE_PAGES) {
        const size_t length = size - at < page * WIPE_PAGES ? size - at
                                                            : page * WIPE_PAGES;
        const bool is_known = mincore((char *)memory + at, length, used) == 0;

        for (size_t i = 0; i * page < length; i++)
            if (!is_known || used[i] & 1)
                explicit_bzero((char *)memory + at + i * page,
                               length - i * page < page ? length - i * page : page);
    }
}

void ct_secret_free(void *memory)
{
    union secret_head *head = memory;
    size_t size;

    if (!memory)
        return;
    size = (--head)->size;
    register_root(unregister, head, size);
    wipe(head, size);
    (void)munmap(head, size);
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
