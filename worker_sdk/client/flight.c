/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/flight.h"

#include <pthread.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/shared.h"
#include "worker_sdk/wire/flight.h"

static struct ct_flight *_Atomic record; /* NULL until ct_flight_open() */
/* The mutex guards the making of the record, record_fd and owner; threads that write calls use only
 * `record`. A child of fork inherits its parent's record, which `owner` tells. */
static int record_fd = -1;
static pid_t owner;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int make_record(void)
{
    void *memory;
    struct ct_flight *made;
    const int fd = ct_shared_create(&memory, "ctrun-flight", sizeof *made, 0);

    if (fd < 0)
        return fd;
    made = memory;
    made->magic = CT_FLIGHT_MAGIC;
    made->version = CT_FLIGHT_VERSION;
    made->pid = getpid();
    record = made; /* never unmapped: a thread may still use a parent's */
    record_fd = fd;
    owner = getpid();
    return 0;
}

/* A child makes a record of its own: its parent's does not describe it. */
int ct_flight_open(void)
{
    int rc = 0;

    pthread_mutex_lock(&mutex);
    if (owner != getpid())
        rc = make_record();
    if (rc == 0)
        rc = record_fd;
    pthread_mutex_unlock(&mutex);
    return rc;
}

uint32_t ct_flight_add_group(const char *name, int me, int size)
{
    struct ct_flight *to;
    struct ct_flight_group *group;
    uint32_t id;

    if (ct_flight_open() < 0)
        return 0;
    to = record;
    id = atomic_fetch_add(&to->groups, 1) + 1;
    group = &to->group[(id - 1) % CT_FLIGHT_GROUPS];
    atomic_store(&group->id, 0);
    group->me = me;
    group->size = size;
    (void)ct_copy(group->name, sizeof group->name, name); /* may be cut */
    atomic_store(&group->id, id);
    return id;
}

/* Only the thread that got the slot's number writes to the slot; the number is 0 while it does. */
uint64_t ct_flight_begin(const struct ct_flight_call *call)
{
    struct ct_flight *to = atomic_load_explicit(&record, memory_order_acquire);
    struct ct_flight_entry *entry;
    uint64_t number;

    if (!to || call->group == 0)
        return 0;
    number = atomic_fetch_add_explicit(&to->calls, 1, memory_order_relaxed) + 1;
    entry = &to->entry[(number - 1) % CT_FLIGHT_ENTRIES];
    atomic_store_explicit(&entry->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    entry->begin_ns = call->now_ns;
    atomic_store_explicit(&entry->end_ns, 0, memory_order_relaxed);
    entry->sequence = call->sequence;
    entry->count = call->count;
    entry->group = call->group;
    entry->peer = call->peer;
    entry->result = 0;
    entry->dtype = call->dtype;
    (void)ct_copy(entry->name, sizeof entry->name, call->name); /* may be cut */
    atomic_store_explicit(&entry->number, number, memory_order_release);
    return number;
}

void ct_flight_end(uint64_t number, int result)
{
    struct ct_flight *to = atomic_load_explicit(&record, memory_order_acquire);
    struct ct_flight_entry *entry;

    if (!to || number == 0)
        return;
    entry = &to->entry[(number - 1) % CT_FLIGHT_ENTRIES];
    if (atomic_load_explicit(&entry->number, memory_order_relaxed) != number)
        return; /* overwritten by later calls, or a parent's */
    entry->result = result;
    atomic_store_explicit(&entry->end_ns, ct_now_ns(), memory_order_release);
}
