/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that spin briefly, then sleep on a futex; no lock, two counters. */
#include "worker_sdk/cnn/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <pmmintrin.h>
#endif

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/thread.h"

enum {
    TEAM_SPINS = 2000
}; /* some 20 to 60 us; a cross-core wake-up costs about 28 */

struct cnn_team {
    int count;
    int started;
    int spins;
    pthread_t *threads;
    cnn_team_fn *fn; /* NULL: end */
    void *context;
    _Atomic uint32_t round;  /* grows with each run(): members wait for a change */
    _Atomic uint32_t active; /* members that have not finished the round */
};

struct member {
    struct cnn_team *team;
    int index;
};

int cnn_team_usable_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    return CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Returns once *word is no longer `old`. */
static void wait_change(_Atomic uint32_t *word, uint32_t old, int spins)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old)
            return;
        relax();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* No member misses a round: run() returns only when `active` is 0, so the next round starts after
 * that. fn and context are written before `round` is raised (release) and read after it was seen
 * to change (acquire). */
static void *run_member(void *argument)
{
    struct member *member = argument;
    struct cnn_team *team = member->team;
    const int index = member->index;

    free(member);
    for (uint32_t round = 0;; round++) {
        wait_change(&team->round, round, team->spins);
        if (!team->fn)
            return NULL;
        team->fn(team->context, index, team->count);
        /* Only the last member wakes the caller. Release: a thread that reads 0 sees what this
         * member has computed. */
        if (atomic_fetch_sub_explicit(&team->active, 1, memory_order_acq_rel) == 1)
            wake_all(&team->active);
    }
}

static int start_member(struct cnn_team *team, int index)
{
    struct member *member = ct_zalloc(sizeof *member);
    int rc;

    if (!member)
        return -ENOMEM;
    member->team = team;
    member->index = index;
    rc = ct_thread_start(&team->threads[index], run_member, member);
    if (rc < 0)
        free(member);
    else
        team->started++;
    return rc;
}

/* In this thread, and in those that it starts from now on. */
static void flush_denormals(void)
{
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
#elif defined(__aarch64__)
    const uint64_t flush_to_zero = 1u << 24;
    uint64_t control;

    __asm__ __volatile__("mrs %0, fpcr" : "=r"(control));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(control | flush_to_zero));
#endif
}

int cnn_team_create(struct cnn_team **out, int count, struct ctrun_error *err)
{
    struct cnn_team *team = ct_zalloc(sizeof *team);
    int rc = 0;

    flush_denormals();
    if (!team ||
        !(team->threads = ct_zalloc_array((size_t)count, sizeof *team->threads))) {
        cnn_team_destroy(team);
        return ct_fail(err, -ENOMEM, "start %d threads: out of memory", count);
    }
    team->count = count;
    team->started = 1;
    team->spins = count <= cnn_team_usable_cores() ? TEAM_SPINS : 0;
    for (int i = 1; i < count && rc == 0; i++)
        rc = start_member(team, i);
    if (rc < 0) {
        cnn_team_destroy(team);
        return ct_fail(err, rc, "start %d threads: %s", count, strerror(-rc));
    }
    *out = team;
    return 0;
}

static void begin(struct cnn_team *team, cnn_team_fn *fn, void *context)
{
    team->fn = fn;
    team->context = context;
    /* Relaxed: the raise of `round` behind it publishes it. Nobody reads it before, since all
     * members are waiting. */
    atomic_store_explicit(&team->active, (uint32_t)team->started - 1,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&team->round, 1, memory_order_release);
    wake_all(&team->round);
}

void cnn_team_destroy(struct cnn_team *team)
{
    if (!team)
        return;
    /* A NULL fn ends the members, also where not all could be started. */
    if (team->started > 1)
        begin(team, NULL, NULL);
    for (int i = 1; i < team->started; i++)
        pthread_join(team->threads[i], NULL);
    free(team->threads);
    free(team);
}

void cnn_team_run(struct cnn_team *team, cnn_team_fn *fn, void *context)
{
    uint32_t left;

    if (team->count > 1)
        begin(team, fn, context);
    fn(context, 0, team->count);
    if (team->count == 1)
        return;
    while ((left = atomic_load_explicit(&team->active, memory_order_acquire)) > 0)
        wait_change(&team->active, left, team->spins);
}

void cnn_team_split(size_t n, int index, int count, size_t *first, size_t *end)
{
    *first = n * (size_t)index / (size_t)count;
    *end = n * ((size_t)index + 1) / (size_t)count;
}
