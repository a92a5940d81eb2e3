/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/thread.h"

enum {
    COPY_LOWEST = 19 /* nice */
};

static void join(struct ct_copy *copy)
{
    if (copy->has_thread)
        pthread_join(copy->thread, NULL);
    copy->has_thread = false;
}

int ct_copy_resize(struct ct_copy *copy, size_t bytes)
{
    if (bytes <= copy->bytes)
        return 0;
    join(copy);
    free(copy->data);
    copy->bytes = 0;
    /* the smaller one is freed before: both at once might not fit */
    if (!(copy->data = ct_zalloc(bytes)))
        return -ENOMEM;
    copy->bytes = bytes;
    return 0;
}

/* Touches the pages by stores, not by one MADV_POPULATE_WRITE for all: that would hold the lock on
 * the memory map of this process until all is done, and block mmap() and munmap() of a trainer
 * with higher priority. The stores change no bytes, whatever the owner of the data writes there
 * meanwhile: the last store may come after ct_copy_settle() has returned. */
__attribute__((no_sanitize("thread"))) static void *touch(void *context)
{
    struct ct_copy *copy = context;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile uint8_t *data = copy->data;

    (void)setpriority(PRIO_PROCESS, 0, COPY_LOWEST); /* of this thread, in Linux */
    for (size_t at = 0; at < copy->bytes && !atomic_load(&copy->is_over); at += page)
        (void)__atomic_fetch_or(&data[at], 0, __ATOMIC_RELAXED);
    return NULL;
}

void ct_copy_touch(struct ct_copy *copy)
{
    join(copy);
    atomic_store(&copy->is_over, false);
    copy->has_thread = ct_thread_start(&copy->thread, touch, copy) == 0;
}

void ct_copy_settle(struct ct_copy *copy, bool through)
{
    if (through)
        join(copy);
    else
        atomic_store(&copy->is_over, true);
}

void ct_copy_deinit(struct ct_copy *copy)
{
    ct_copy_settle(copy, false);
    join(copy);
    free(copy->data);
    *copy = (struct ct_copy){.bytes = 0};
}
