/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed or stopped in a stream of calls of one kind. All other ranks get an error that names it.
 *
 * CTRUN_TEST_TIMES=1 prints after how many ms each rank got the error.
 * CTRUN_TEST_STOPS=1 stops a rank in calls of every kind, not only of all_reduce; each waits for its deadline. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/lib/calls.h"
#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/group_private.h"

enum {
    SIZE = 4,
    VICTIM = 2,
    MANY = 1000000, /* for each rank, so that the call is always under way */
    LONG_GATHER = CALL_KINDS,
    CALLS = 1,      /* counter: calls of rank 0 */
    FAILED = 2,     /* counter: ranks that got an error */
    STOP_MS = 5000, /* long enough for the others on a busy machine */
};

static _Atomic uint64_t *death_ns; /* of each wire; shared */

struct scene {
    enum wire wire;
    enum call_kind kind;
    bool is_stop;
};

static int make_call(struct ctrun_group *group, const struct scene *scene,
                     struct ctrun_error *err)
{
    static float in[MANY], out[SIZE * MANY];

    if ((int)scene->kind == LONG_GATHER)
        return ctrun_all_gather(group, in, out, MANY, CTRUN_F32, NULL, err);
    return call_make(group, scene->kind, VICTIM, err);
}

/* A rank whose call failed must not end before all others have their error: they would name it, not
 * the cause. So all stay. */
static int call_on(int rank, void *context)
{
    const struct scene *scene = context;
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    struct ctrun_error err = {.text = ""};
    int rc;

    options.shm = scene->wire != WIRE_TCP;
    options.timeout_ms = RANKS_DEADLINE_MS;
    group = ranks_open(rank, worlds_host_of(scene->wire, rank), &options);
    if (scene->is_stop)
        group->timeout_ms = STOP_MS;
    while ((rc = make_call(group, scene, &err)) == 0)
        if (rank == 0)
            ranks_signal(CALLS);
    if (getenv("CTRUN_TEST_TIMES"))
        fprintf(stderr, "wire %d kind %d rank %d: %.1f ms\n", scene->wire, scene->kind,
                rank, (double)(ct_now_ns() - death_ns[scene->wire]) / 1e6);
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

/* Starts a world and kills or stops its victim. */
static struct ranks *begin_scene(struct scene *scene)
{
    struct ranks *ranks = ranks_start(SIZE, call_on, scene);

    ranks_await(CALLS, 3 + (unsigned)scene->kind % CALL_KINDS);
    death_ns[scene->wire] = ct_now_ns();
    kill(ranks_pid(ranks, VICTIM), scene->is_stop ? SIGSTOP : SIGKILL);
    return ranks;
}

static void finish_scene(struct ranks *ranks, const struct scene *scene)
{
    siginfo_t info;
    int statuses[SIZE];

    for (int rank = 0; scene->is_stop && rank < SIZE; rank++)
        if (rank != VICTIM)
            assert_int_equal(
                waitid(P_PID, (id_t)ranks_pid(ranks, rank), &info, WEXITED | WNOWAIT),
                0);
    kill(ranks_pid(ranks, VICTIM), SIGKILL);
    (void)ranks_finish(ranks, statuses);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != VICTIM && statuses[rank] != 0)
            fail_msg("wire %d, kind %d, %s: rank %d: status %#x", scene->wire,
                     scene->kind, scene->is_stop ? "stopped" : "killed", rank,
                     (unsigned)statuses[rank]);
}

TEST(a_rank_that_is_killed_in_any_call_is_named)
{
    for (int wire = 0; wire < WIRES; wire++)
        for (int kind = 0; kind < CALL_KINDS; kind++) {
            struct scene scene = {(enum wire)wire, (enum call_kind)kind, false};

            finish_scene(begin_scene(&scene), &scene);
        }
}

/* The worlds of the different wires wait for their deadlines at the same time. */
TEST(a_rank_that_is_stopped_in_any_call_is_named)
{
    const bool has_all = getenv("CTRUN_TEST_STOPS") != NULL;

    for (int kind = 0; kind < (has_all ? CALL_KINDS : CALL_REDUCE); kind++) {
        struct scene scenes[WIRES];
        struct ranks *worlds[WIRES];

        for (int wire = 0; wire < WIRE_MIXED + has_all; wire++) {
            scenes[wire] = (struct scene){(enum wire)wire, (enum call_kind)kind, true};
            worlds[wire] = begin_scene(&scenes[wire]);
        }
        for (int wire = 0; wire < WIRE_MIXED + has_all; wire++)
            finish_scene(worlds[wire], &scenes[wire]);
    }
}

/* Two of the other ranks wait for each other's data, which the stopped rank has. */
TEST(a_rank_that_is_stopped_is_named_by_all_who_wait_in_a_row)
{
    struct scene scene = {WIRE_TCP, (enum call_kind)LONG_GATHER, true};

    finish_scene(begin_scene(&scene), &scene);
}

int main(void)
{
    death_ns = mmap(NULL, WIRES * sizeof *death_ns, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (death_ns == MAP_FAILED)
        return 1;
    return test_run(NULL, NULL);
}
