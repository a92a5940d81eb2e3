/* SPDX-License-Identifier: Apache-2.0 */
/* A rank is killed or stopped in a stream of calls of one kind, from outside at any moment or by itself
 * at a step of the call. All other ranks get an error that names it.
 *
 * CTRUN_TEST_STRIKES=1 strikes at every step of every kind, not only at some.
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
#include "worker_sdk/comm/host/host_tcp_private.h"
#include "worker_sdk/comm/host/reduce.h"
#include "worker_sdk/comm/host/ring.h"

enum {
    SIZE = 4,
    VICTIM = 2,
    MANY = 1000000, /* for each rank, so that the call is always under way */
    LONG_GATHER = CALL_KINDS,
    DIRECT_ALL_REDUCE, /* in memory of the group */
    DIRECT_BROADCAST,
    KINDS,
    STRIKES = 40, /* more steps than a call has: the last ones are of the next call */
    CALLS = 1,    /* counter: calls of rank 0 */
    WIRE_PAIRS = WIRES, /* ranks 0 and 3 on one host, 1 and 2 on another */
    FAILED = 2,         /* counter: ranks that got an error */
    STOP_MS = 5000,     /* long enough for the others on a busy machine */
};

static _Atomic uint64_t *death_ns; /* of each wire; shared */

struct scene {
    enum wire wire;
    enum call_kind kind;
    bool is_stop;
    unsigned strike; /* the step at which the victim strikes itself; 0: it is struck */
};

/* ---- The steps of the victim ---- */

static _Atomic unsigned steps_left; /* until it strikes; 0: never */
static int strike_signal;

static bool is_struck(void)
{
    unsigned left = steps_left;

    while (left && !atomic_compare_exchange_weak(&steps_left, &left, left - 1))
        ;
    return left == 1;
}

static void step(void)
{
    if (is_struck())
        raise(strike_signal);
}

/* Three steps: nothing is posted; posted, and nobody is woken; done. */
void __real_ct_segment_post(struct ct_segment *segment, uint64_t number);
void __wrap_ct_segment_post(struct ct_segment *segment, uint64_t number);
void __wrap_ct_segment_post(struct ct_segment *segment, uint64_t number)
{
    step();
    if (is_struck()) {
        atomic_store(&ct_segment_get_post(segment, segment->me, number)->number,
                     number);
        raise(strike_signal);
    }
    __real_ct_segment_post(segment, number);
    step();
}

/* In a direct call its piece is claimed, and then reduced, but not counted. */
void __real_ct_reduce(const struct ct_reduction *how, void *const *dst, int dst_count,
                      const void *const *src, int src_count, size_t count);
void __wrap_ct_reduce(const struct ct_reduction *how, void *const *dst, int dst_count,
                      const void *const *src, int src_count, size_t count);
void __wrap_ct_reduce(const struct ct_reduction *how, void *const *dst, int dst_count,
                      const void *const *src, int src_count, size_t count)
{
    step();
    __real_ct_reduce(how, dst, dst_count, src, src_count, count);
    step();
}

/* Before the bytes, and among them. */
size_t __real_ct_ring_put(struct ct_segment *segment, int member, const void *data,
                          size_t bytes);
size_t __wrap_ct_ring_put(struct ct_segment *segment, int member, const void *data,
                          size_t bytes);
size_t __wrap_ct_ring_put(struct ct_segment *segment, int member, const void *data,
                          size_t bytes)
{
    step();
    if (is_struck()) {
        (void)__real_ct_ring_put(segment, member, data, bytes / 2);
        raise(strike_signal);
    }
    return __real_ct_ring_put(segment, member, data, bytes);
}

enum ct_moved __real_ct_host_tcp_push(int fd, const void *data, size_t end,
                                      size_t *done);
enum ct_moved __wrap_ct_host_tcp_push(int fd, const void *data, size_t end,
                                      size_t *done);
enum ct_moved __wrap_ct_host_tcp_push(int fd, const void *data, size_t end,
                                      size_t *done)
{
    if (*done < end) {
        step();
        if (is_struck()) {
            (void)__real_ct_host_tcp_push(fd, data, *done + (end - *done) / 2, done);
            raise(strike_signal);
        }
    }
    return __real_ct_host_tcp_push(fd, data, end, done);
}

enum ct_moved __real_ct_host_tcp_pull(struct ct_host_tcp *tcp, int member, void *data,
                                      size_t end, size_t *done);
enum ct_moved __wrap_ct_host_tcp_pull(struct ct_host_tcp *tcp, int member, void *data,
                                      size_t end, size_t *done);
enum ct_moved __wrap_ct_host_tcp_pull(struct ct_host_tcp *tcp, int member, void *data,
                                      size_t end, size_t *done)
{
    const enum ct_moved moved = __real_ct_host_tcp_pull(tcp, member, data, end, done);

    if (moved == CT_MOVED_SOME)
        step();
    return moved;
}

/* ---- The worlds ---- */

static int make_call(struct ctrun_group *group, const struct scene *scene,
                     struct ctrun_error *err)
{
    static float in[MANY], out[SIZE * MANY];
    static void *direct;
    int rc;

    if ((int)scene->kind < CALL_KINDS)
        return call_make(group, scene->kind, VICTIM, err);
    if ((int)scene->kind == LONG_GATHER)
        return ctrun_all_gather(group, in, out, MANY, CTRUN_F32, NULL, err);
    if (!direct && (rc = ctrun_group_alloc(group, sizeof in, &direct, err)) < 0)
        return rc;
    if ((int)scene->kind == DIRECT_BROADCAST)
        return ctrun_broadcast(group, direct, direct, MANY, CTRUN_F32, VICTIM, NULL,
                               err);
    return ctrun_all_reduce(group, direct, direct, MANY, CTRUN_F32, CTRUN_SUM, NULL,
                            err);
}

static const char *host_of(const struct scene *scene, int rank)
{
    if ((int)scene->wire == WIRE_PAIRS)
        return rank == 0 || rank == 3 ? "a" : "b";
    return worlds_host_of(scene->wire, rank);
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
    group = ranks_open(rank, host_of(scene, rank), &options);
    if (scene->is_stop)
        group->timeout_ms = scene->kind == CALL_RING && rank ? 2 * STOP_MS : STOP_MS;
    strike_signal = scene->is_stop ? SIGSTOP : SIGKILL;
    steps_left = rank == VICTIM ? scene->strike : 0;
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

    if (scene->strike)
        return ranks;
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
    if (!scene->strike || scene->is_stop)
        kill(ranks_pid(ranks, VICTIM), SIGKILL);
    (void)ranks_finish(ranks, statuses);
    for (int rank = 0; rank < SIZE; rank++)
        if (rank != VICTIM && statuses[rank] != 0)
            fail_msg("wire %d, kind %d, %s at step %u: rank %d: status %#x",
                     scene->wire, scene->kind, scene->is_stop ? "stopped" : "killed",
                     scene->strike, rank, (unsigned)statuses[rank]);
}

TEST(a_rank_that_is_killed_in_any_call_is_named)
{
    for (int wire = 0; wire < WIRES; wire++)
        for (int kind = 0; kind < CALL_KINDS; kind++) {
            struct scene scene = {(enum wire)wire, (enum call_kind)kind, false, 0};

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
            scenes[wire] = (struct scene){(enum wire)wire, (enum call_kind)kind, true,
                                          0};
            worlds[wire] = begin_scene(&scenes[wire]);
        }
        for (int wire = 0; wire < WIRE_MIXED + has_all; wire++)
            finish_scene(worlds[wire], &scenes[wire]);
    }
}

/* Plays n scenes at the same time. */
static void play(struct scene *scenes, int n)
{
    struct ranks *worlds[KINDS * WIRES];

    for (int i = 0; i < n; i++)
        worlds[i] = begin_scene(&scenes[i]);
    for (int i = 0; i < n; i++)
        finish_scene(worlds[i], &scenes[i]);
}

/* Some of the other ranks wait for each other's data, which the stopped rank has: two over TCP, and rank 0, whose
 * deadline is the first, for rank 3. */
TEST(a_rank_that_is_stopped_is_named_by_all_who_wait_in_a_row)
{
    struct scene scenes[] = {{WIRE_TCP, (enum call_kind)LONG_GATHER, true, 0},
                             {WIRE_SHM, CALL_RING, true, 0},
                             {WIRE_MIXED, CALL_RING, true, 0},
                             {(enum wire)WIRE_PAIRS, CALL_RING, true, 0}};

    play(scenes, 4);
}

/* Each scene has another step, so that a few scenes have many. */
static void strike(bool is_stop, unsigned stride, int a_time)
{
    const unsigned end = KINDS * WIRES * STRIKES;
    struct scene scenes[KINDS * WIRES];
    int n = 0;

    if (getenv("CTRUN_TEST_STRIKES"))
        stride = 1;
    for (unsigned i = 0; i < end; i += stride) {
        scenes[n++] = (struct scene){(enum wire)(i % WIRES),
                                     (enum call_kind)(i / WIRES % KINDS), is_stop,
                                     1 + i / (WIRES * KINDS)};
        if (n == a_time || i + stride >= end) {
            play(scenes, n);
            n = 0;
        }
    }
}

TEST(a_rank_that_is_killed_at_any_step_of_a_call_is_named)
{
    strike(false, 43, 6);
}

/* All of a time wait for their deadlines together. */
TEST(a_rank_that_is_stopped_at_any_step_of_a_call_is_named)
{
    strike(true, 601, 12);
}

int main(void)
{
    death_ns = mmap(NULL, (WIRE_PAIRS + 1) * sizeof *death_ns, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (death_ns == MAP_FAILED)
        return 1;
    return test_run(NULL, NULL);
}
