/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/copy.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"

enum {
    COPY_LOWEST = 19 /* nice */
};

int ct_copy_resize(struct ct_copy *copy, size_t bytes)
{
    if (bytes <= copy->bytes)
        return 0;
    free(copy->data);
    copy->bytes = 0;
    /* the smaller one is freed before: both at once might not fit */
    if (!(copy->data = ct_zalloc(bytes)))
        return -ENOMEM;
    copy->bytes = bytes;
    return 0;
}

/* Plain stores, and not one MADV_POPULATE_WRITE for all: that would hold the lock on this process' memory map until
 * it is through, against the mmap() and munmap() of a trainer whose priority is higher. */
static void *touch(void *context)
{
    struct ct_copy *copy = context;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile uint8_t *data = copy->data;

    (void)setpriority(PRIO_PROCESS, 0, COPY_LOWEST); /* of this thread, in Linux */
    for (size_t at = 0; at < copy->bytes && !atomic_load(&copy->is_over); at += page)
        data[at] = 0;
    return NULL;
}

void ct_copy_touch(struct ct_copy *copy)
{
    sigset_t all, before;

    sigfillset(&all);
    atomic_store(&copy->is_over, false);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    copy->has_thread = pthread_create(&copy->thread, NULL, touch, copy) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ct_copy_settle(struct ct_copy *copy, bool through)
{
    if (!copy->has_thread)
        return;
    if (!through)
        atomic_store(&copy->is_over, true);
    pthread_join(copy->thread, NULL);
    copy->has_thread = false;
}

void ct_copy_deinit(struct ct_copy *copy)
{
    ct_copy_settle(copy, false);
    free(copy->data);
    *copy = (struct ct_copy){.bytes = 0};
}
