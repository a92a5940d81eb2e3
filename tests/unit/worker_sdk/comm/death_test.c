/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed, or stopped, somewhere in a stream of calls of one kind: all others get an error that names it.
 *
 * CTRUN_TEST_TIMES=1 tells how long after the death each rank knew of it, in ms.
 * CTRUN_TEST_STOPS=1 stops one in calls of every kind, not of all_reduce alone: each waits for its deadline. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/clock.h"

enum {
    SIZE = 4,
    VICTIM = 2,
    COUNT = 20000,     /* for each rank */
    MANY = 50 * COUNT, /* ... in a call that is always somewhere on its ring */
    CALLS = 1,         /* counter: those that rank 0 has made */
    FAILED = 2,        /* ... of ranks that had an error */
    STOP_MS = 3000,    /* the others are not to be late on a busy machine */
};

enum kind {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    ALL_GATHER_V,
    REDUCE_SCATTER,
    BARRIER,
    ALL_TO_ALL,
    ALL_TO_ALL_V,
    GATHER,
    SCATTER,
    RING,
    KINDS,
    LONG_GATHER = KINDS,
};

static _Atomic uint64_t *death_ns; /* shared */

struct scene {
    enum wire wire;
    enum kind kind;
    bool is_stop;
};

static int pass_on(struct ctrun_group *group, const float *in, float *out,
                   struct ctrun_error *err)
{
    const int me = ctrun_group_rank(group);
    int rc = ctrun_batch_begin(group, err);

    if (rc == 0)
        rc = ctrun_send(group, in, COUNT, CTRUN_F32, (me + 1) % SIZE, NULL, err);
    if (rc == 0)
        rc = ctrun_recv(group, out, COUNT, CTRUN_F32, (me + SIZE - 1) % SIZE, NULL,
                        err);
    return rc < 0 ? rc : ctrun_batch_end(group, NULL, err);
}

static int make_call(struct ctrun_group *group, enum kind kind, struct ctrun_error *err)
{
    static float in[SIZE * MANY], out[SIZE * MANY];
    static const size_t counts[SIZE] = {COUNT, COUNT, COUNT, COUNT};
    static const size_t starts[SIZE] = {0, COUNT, 2 * COUNT, 3 * COUNT};
    const struct ctrun_parts parts = {sizeof parts, counts, starts};

    switch (kind) {
    case ALL_REDUCE:
        return ctrun_all_reduce(group, in, in, COUNT, CTRUN_F32, CTRUN_SUM, NULL, err);
    case REDUCE:
        return ctrun_reduce(group, in, out, COUNT, CTRUN_F32, CTRUN_SUM, 0, NULL, err);
    case BROADCAST:
        return ctrun_broadcast(group, in, in, COUNT, CTRUN_F32, VICTIM, NULL, err);
    case ALL_GATHER:
        return ctrun_all_gather(group, in, out, COUNT, CTRUN_F32, NULL, err);
    case ALL_GATHER_V:
        return ctrun_all_gather_v(group, in, out, &parts, CTRUN_F32, NULL, err);
    case REDUCE_SCATTER:
        return ctrun_reduce_scatter(group, in, out, COUNT, CTRUN_F32, CTRUN_SUM, NULL,
                                    err);
    case LONG_GATHER:
        return ctrun_all_gather(group, in, out, MANY, CTRUN_F32, NULL, err);
    case BARRIER: return ctrun_barrier(group, NULL, err);
    case ALL_TO_ALL:
        return ctrun_all_to_all(group, in, out, COUNT, CTRUN_F32, NULL, err);
    case ALL_TO_ALL_V:
        return ctrun_all_to_all_v(group, in, &parts, out, &parts, CTRUN_F32, NULL, err);
    case GATHER: return ctrun_gather(group, in, out, COUNT, CTRUN_F32, 0, NULL, err);
    case SCATTER:
        return ctrun_scatter(group, in, out, COUNT, CTRUN_F32, VICTIM, NULL, err);
    default: return pass_on(group, in, out, err);
    }
}

/* The first that gives up a call in vain is not the cause, but may be gone before others see why: so all stay. */
static int call_on(int rank, void *context)
{
    const struct scene *scene = context;
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    struct ctrun_error err = {.text = ""};
    int rc;

    options.shm = scene->wire != WIRE_TCP;
    options.timeout_ms = scene->is_stop ? STOP_MS : RANKS_DEADLINE_MS;
    group = ranks_open(rank, worlds_host_of(scene->wire, rank), &options);
    while ((rc = make_call(group, scene->kind, &err)) == 0)
        if (rank == 0)
            ranks_signal(CALLS);
    if (getenv("CTRUN_TEST_TIMES"))
        fprintf(stderr, "wire %d kind %d rank %d: %.1f ms\n", scene->wire, scene->kind,
                rank, (double)(ct_now_ns() - *death_ns) / 1e6);
    ranks_signal(FAILED);
    ranks_await(FAILED, SIZE - 1);
    if (rc != (scene->is_stop ? CTRUN_E_TIMEOUT : CTRUN_E_PEER_LOST) ||
        !strstr(err.text, "rank 2"))
        fprintf(stderr, "rank %d got %d: %s\n", rank, rc, err.text);
    CHECK(rc == (scene->is_stop ? CTRUN_E_TIMEOUT : CTRUN_E_PEER_LOST));
    CHECK(strstr(err.text, "rank 2"));
    ctrun_group_close(group);
    return 0;
}

static void run_scene(struct scene *scene)
{
    struct ranks *ranks = ranks_start(SIZE, call_on, scene);
    int statuses[SIZE];

    ranks_await(CALLS, 3 + (unsigned)scene->kind % KINDS);
    *death_ns = ct_now_ns();
    kill(ranks_pid(ranks, VICTIM), scene->is_stop ? SIGSTOP : SIGKILL);
    if (scene->is_stop) {
        ranks_await(FAILED, SIZE - 1);
        kill(ranks_pid(ranks, VICTIM), SIGKILL);
    }
    (void)ranks_finish(ranks, statuses);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != VICTIM && statuses[rank] != 0)
            fail_msg("wire %d, kind %d, %s: rank %d: status %#x", scene->wire,
                     scene->kind, scene->is_stop ? "stopped" : "killed", rank,
                     (unsigned)statuses[rank]);
}

static void a_rank_that_is_killed_in_any_call_is_named(void **state)
{
    (void)state;
    for (int wire = 0; wire < WIRES; wire++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct scene scene = {(enum wire)wire, (enum kind)kind, false};

            run_scene(&scene);
        }
}

static void a_rank_that_is_stopped_in_any_call_is_named(void **state)
{
    const bool has_all = getenv("CTRUN_TEST_STOPS") != NULL;

    (void)state;
    for (int wire = 0; wire < WIRE_MIXED + has_all; wire++)
        for (int kind = 0; kind < (has_all ? KINDS : REDUCE); kind++) {
            struct scene scene = {(enum wire)wire, (enum kind)kind, true};

            run_scene(&scene);
        }
}

/* Two of the others wait for each other's data, which are with the one that is stopped. */
static void a_rank_that_is_stopped_is_named_by_all_who_wait_in_a_row(void **state)
{
    struct scene scene = {WIRE_TCP, LONG_GATHER, true};

    (void)state;
    run_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_killed_in_any_call_is_named),
        cmocka_unit_test(a_rank_that_is_stopped_in_any_call_is_named),
        cmocka_unit_test(a_rank_that_is_stopped_is_named_by_all_who_wait_in_a_row),
    };
    death_ns = mmap(NULL, sizeof *death_ns, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (death_ns == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
