/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ranks.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

enum {
    ENTRIES_MAX = 4096,
    VALUE_MAX = 16384,
    COUNTERS = 8,
    SLICE_MS = 50
};

struct entry {
    char key[CT_BOOTSTRAP_KEY_MAX];
    size_t length;
    unsigned char value[VALUE_MAX];
};

struct store {
    pthread_mutex_t lock; /* robust: a rank may be killed with it */
    _Atomic uint32_t changes;
    _Atomic uint32_t counters[COUNTERS];
    int size;
    int entry_count;
    struct entry entries[ENTRIES_MAX];
};

struct ranks {
    int n;
    pid_t pids[RANKS_MAX];
};

static struct store *store;
static __thread _Atomic uint64_t sequence; /* groups that this rank began to open */

static void changed(void)
{
    atomic_fetch_add(&store->changes, 1);
    syscall(SYS_futex, &store->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wait_for_change(uint32_t seen)
{
    struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};

    syscall(SYS_futex, &store->changes, FUTEX_WAIT, seen, &slice, NULL, 0);
}

static void lock_store(void)
{
    if (pthread_mutex_lock(&store->lock) == EOWNERDEAD)
        pthread_mutex_consistent(&store->lock);
}

/* The next two: lock held. */
static struct entry *find_entry(const char *key)
{
    for (int i = store->entry_count - 1; i >= 0; i--)
        if (strcmp(store->entries[i].key, key) == 0)
            return &store->entries[i];
    return NULL;
}

static int set_entry(const char *key, const void *value, size_t length)
{
    struct entry *entry = find_entry(key);

    if (!entry && store->entry_count == ENTRIES_MAX)
        return -ENOSPC;
    if (!entry)
        entry = &store->entries[store->entry_count++];
    (void)ct_copy(entry->key, sizeof entry->key, key);
    memcpy(entry->value, value, length);
    entry->length = length;
    return 0;
}

static int store_set(void *context, const char *key, const void *value, size_t length,
                     uint64_t deadline_ms, struct ctrun_error *err)
{
    int rc;

    (void)context;
    (void)deadline_ms;
    if (length > VALUE_MAX)
        return ct_fail(err, -EMSGSIZE, "test store: %zu bytes", length);
    lock_store();
    rc = set_entry(key, value, length);
    pthread_mutex_unlock(&store->lock);
    changed();
    return rc < 0 ? ct_fail(err, rc, "test store: full") : 0;
}

static int store_get(void *context, const char *key, void **value, size_t *length,
                     uint64_t deadline_ms, struct ctrun_error *err)
{
    (void)context;
    for (;;) {
        uint32_t seen = atomic_load(&store->changes);
        const struct entry *entry;

        lock_store();
        entry = find_entry(key);
        if (entry && value) {
            *value = malloc(entry->length + 1);
            memcpy(*value, entry->value, entry->length);
            *length = entry->length;
        }
        pthread_mutex_unlock(&store->lock);
        if (entry)
            return 0;
        if (ct_now_ms() >= deadline_ms)
            return ct_fail(err, CTRUN_E_TIMEOUT, "test store: no key %s", key);
        wait_for_change(seen);
    }
}

static int store_wait(void *context, const char *key, uint64_t deadline_ms,
                      struct ctrun_error *err)
{
    return store_get(context, key, NULL, NULL, deadline_ms, err);
}

static int board_put(void *context, const char *key, const char *text)
{
    return store_set(context, key, text, strlen(text) + 1, 0, NULL);
}

static int board_put_first(void *context, const char *key, const char *text,
                           char first[CT_NOTE_MAX])
{
    int rc = 0;

    (void)context;
    lock_store();
    if (!find_entry(key))
        rc = set_entry(key, text, strlen(text) + 1);
    if (rc == 0)
        (void)ct_copy(first, CT_NOTE_MAX, (const char *)find_entry(key)->value);
    pthread_mutex_unlock(&store->lock);
    return rc;
}

static int board_read(void *context, const char *key, char text[CT_NOTE_MAX])
{
    const struct entry *entry;

    (void)context;
    lock_store();
    if ((entry = find_entry(key)))
        (void)ct_copy(text, CT_NOTE_MAX, (const char *)entry->value);
    pthread_mutex_unlock(&store->lock);
    return entry != NULL;
}

void ranks_new_store(int n)
{
    pthread_mutexattr_t attr;

    if (store)
        munmap(store, sizeof *store);
    store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (store == MAP_FAILED)
        abort();
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&store->lock, &attr);
    store->size = n;
}

void ranks_signal(int counter)
{
    atomic_fetch_add(&store->counters[counter], 1);
    changed();
}

void ranks_await(int counter, unsigned value)
{
    uint64_t end_ms = ct_deadline_ms(RANKS_DEADLINE_MS);

    for (;;) {
        uint32_t seen = atomic_load(&store->changes);
        if (atomic_load(&store->counters[counter]) >= value)
            return;
        if (ct_now_ms() >= end_ms) {
            fprintf(stderr, "counter %d did not reach %u\n", counter, value);
            exit(1);
        }
        wait_for_change(seen);
    }
}

struct ranks *ranks_start(int n, ranks_fn *body, void *context)
{
    struct ranks *ranks = calloc(1, sizeof *ranks);
    pid_t parent = getpid();

    ranks_new_store(n);
    ranks->n = n;
    fflush(NULL);
    for (int rank = 0; rank < n; rank++) {
        if ((ranks->pids[rank] = fork()) != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        free(ranks);
        sequence = 0;
        exit(body(rank, context));
    }
    return ranks;
}

pid_t ranks_pid(const struct ranks *ranks, int rank)
{
    return ranks->pids[rank];
}

int ranks_finish(struct ranks *ranks, int *statuses)
{
    uint64_t end_ms = ct_deadline_ms(RANKS_DEADLINE_MS);
    int failed = 0;

    for (int rank = 0; rank < ranks->n; rank++) {
        int pidfd = (int)syscall(SYS_pidfd_open, ranks->pids[rank], 0);
        struct pollfd entry = {.fd = pidfd, .events = POLLIN};
        int status = 0;
        if (pidfd < 0) { /* reaped already, by a test that traces it */
            if (statuses)
                statuses[rank] = 0;
            continue;
        }
        if (poll(&entry, 1, ct_left_ms(end_ms)) == 0) {
            fprintf(stderr, "rank %d hangs\n", rank);
            kill(ranks->pids[rank], SIGKILL);
        }
        close(pidfd);
        waitpid(ranks->pids[rank], &status, 0);
        if (statuses)
            statuses[rank] = status;
        failed += status != 0;
    }
    free(ranks);
    return failed;
}

int ranks_run(int n, ranks_fn *body, void *context)
{
    return ranks_finish(ranks_start(n, body, context), NULL);
}

struct ct_group_place ranks_place(int rank, const char *host_id)
{
    return (struct ct_group_place){
        .rank = rank,
        .world_size = store->size,
        .generation = 7,
        .sequence = &sequence,
        .bootstrap = {.set = store_set, .get = store_get, .wait = store_wait},
        .board = {.put = board_put, .put_first = board_put_first, .read = board_read},
        .host_id = host_id};
}

struct ctrun_group *ranks_open(int rank, const char *host_id,
                               const struct ctrun_group_options *options)
{
    struct ct_group_place place = ranks_place(rank, host_id);
    struct ctrun_group *group;
    struct ctrun_error err;

    CHECK_OK(ct_group_open(&group, &place, options, &err));
    return group;
}
