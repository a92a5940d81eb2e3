/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/flight.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/flight.h"

static struct ct_flight *_Atomic record; /* NULL until somebody asks for it */
static int record_fd = -1;
static pid_t owner;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int make_record(void)
{
    const int fd = memfd_create("ctrun-flight", MFD_CLOEXEC);
    struct ct_flight *memory;
    int rc;

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, sizeof *memory) < 0 ||
        (memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                       0)) == MAP_FAILED) {
        rc = -errno;
        close(fd);
        return rc;
    }
    memory->magic = CT_FLIGHT_MAGIC;
    memory->version = CT_FLIGHT_VERSION;
    memory->pid = getpid();
    record =
        memory; /* another thread may still be at a parent's: it is never unmapped */
    record_fd = fd;
    owner = getpid();
    return 0;
}

/* A child writes a record of its own: its parent's is not about it. */
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
    (void)ct_copy(group->name, sizeof group->name, name); /* cut is fine */
    atomic_store(&group->id, id);
    return id;
}

/* A slot is written anew by who has its number; a torn one is seen by its number, before and behind. */
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
    (void)ct_copy(entry->name, sizeof entry->name, call->name); /* cut is fine */
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
        return; /* so many came since, or it was a parent's */
    entry->result = result;
    atomic_store_explicit(&entry->end_ns, ct_now_ns(), memory_order_release);
}
