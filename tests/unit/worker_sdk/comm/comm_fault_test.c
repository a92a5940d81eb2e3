/* SPDX-License-Identifier: Apache-2.0 */
/* How groups fail: ranks that differ, die, leave, come late, or never come. Each failure reaches
 * all ranks, with the same code, and names the rank that caused it. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/refuse_call.h"
#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/comm/host/discover.h"

enum {
    SIZE = 4,
    VICTIM = 2,
    LARGE = 100000,
    MET = 7, /* counter: ranks that have opened the group */
    LONG_MS = 30000,
    SHORT_MS = 700 /* deadline of calls that cannot succeed */
};

struct scene {
    enum wire wire;
    int variant;
};

static struct ctrun_group_options options_of(const struct scene *scene,
                                             uint64_t timeout_ms)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;

    options.timeout_ms = timeout_ms;
    options.shm = scene->wire != WIRE_TCP;
    return options;
}

static const char *host_of(const struct scene *scene, int rank)
{
    /* The victim, rank 2, does not lead its host: ranks 0 and 1 do. */
    return scene->wire == WIRE_MIXED ? (rank % 2 ? "odd" : "even") : NULL;
}

static struct ctrun_group *open_scene(int rank, const struct scene *scene,
                                      uint64_t timeout_ms)
{
    struct ctrun_group_options options = options_of(scene, timeout_ms);

    return ranks_open(rank, host_of(scene, rank), &options);
}

/* For tests in which a rank fails next: all ranks have opened the group and left its barrier.
 * Without this the failure could end these calls, too. */
static struct ctrun_group *open_together(int rank, const struct scene *scene)
{
    struct ctrun_group *group = open_scene(rank, scene, LONG_MS);
    struct ctrun_error err;

    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ranks_signal(MET);
    ranks_await(MET, SIZE);
    return group;
}

static void on_every_wire(ranks_fn *body, int variants)
{
    for (int wire = 0; wire < WIRES; wire++) {
        for (int variant = 0; variant < variants; variant++) {
            struct scene scene = {(enum wire)wire, variant};
            if (ranks_run(SIZE, body, &scene) != 0)
                fail_msg("wire %d, variant %d", wire, variant);
        }
    }
}

#define WIRES_TEST(name, variants)                                                     \
    static ranks_fn name##_in_rank;                                                    \
    TEST(name)                                                                         \
    {                                                                                  \
        on_every_wire(name##_in_rank, variants);                                       \
    }                                                                                  \
    static int name##_in_rank(int rank, void *context)

static void check_failure(int rc, int want, const struct ctrun_error *err,
                          const char *word)
{
    if (rc == want && strstr(err->text, word))
        return;
    fprintf(stderr, "wanted %d with '%s', got %d: %s\n", want, word, rc,
            rc < 0 ? err->text : "success");
    exit(1);
}

/* ---- Without shared memory ---------------------------------------------------------------- */

static void count_line(void *count, enum ctrun_log_level level, const char *line)
{
    (void)level;
    *(int *)count += strstr(line, "no shared memory, using TCP: pidfd_open") != NULL;
}

/* One rank or all of them cannot share memory, which is warned of once, or are not allowed to. */
static int shares_nothing(int rank, void *context)
{
    const struct scene *scene = context;
    const struct ctrun_group_options options = options_of(scene, LONG_MS);
    struct ctrun_group *group;
    struct ctrun_error err;
    int sum = rank;
    int warnings = 0;
    int refused = 0;

    ctrun_log_to(count_line, &warnings, CTRUN_LOG_WARN);
    if (rank == VICTIM || scene->variant / 2) {
        refused = scene->variant % 2;
        if (scene->variant % 2)
            CHECK(refuse_call(SYS_pidfd_open));
        else
            setenv("CTRUN_SHM_DISABLE", "1", 1);
    }
    group = ranks_open(rank, NULL, &options);
    CHECK(!group->backend->is_inline(group->self));
    CHECK_OK(ctrun_all_reduce(group, &sum, &sum, 1, CTRUN_I32, CTRUN_SUM, NULL, &err));
    CHECK(sum == 0 + 1 + 2 + 3);
    ctrun_group_close(group);
    ctrun_group_close(ranks_open(rank, NULL, &options));
    ctrun_log_to(NULL, NULL, CTRUN_LOG_WARN);
    CHECK(warnings == refused);
    return 0;
}

TEST(ranks_that_cannot_share_memory_use_tcp)
{
    for (int variant = 0; variant < 4; variant++) {
        struct scene scene = {WIRE_SHM, variant};

        assert_int_equal(ranks_run(SIZE, shares_nothing, &scene), 0);
    }
}

/* ---- Ranks that do not agree ------------------------------------------------------------ */

static int differ(int rank, void *context)
{
    static float data[LARGE];
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, scene);
    bool odd = rank == VICTIM;
    struct ctrun_error err;
    int rc = 0;

    switch (scene->variant) {
    case 0:
        rc = ctrun_all_reduce(group, data, data, odd ? 3 : 4, CTRUN_F32, CTRUN_SUM,
                              NULL, &err);
        break;
    case 1:
        rc = ctrun_all_reduce(group, data, data, LARGE - odd, CTRUN_F32, CTRUN_SUM,
                              NULL, &err);
        break;
    case 2:
        rc = ctrun_all_reduce(group, data, data, odd ? 4 : LARGE, CTRUN_F32, CTRUN_SUM,
                              NULL, &err);
        break;
    case 3:
        rc = ctrun_all_reduce(group, data, data, LARGE, odd ? CTRUN_I32 : CTRUN_F32,
                              CTRUN_SUM, NULL, &err);
        break;
    case 4:
        rc = ctrun_all_reduce(group, data, data, 9, CTRUN_F32,
                              odd ? CTRUN_MAX : CTRUN_SUM, NULL, &err);
        break;
    case 5:
        rc = odd ? ctrun_barrier(group, NULL, &err)
                 : ctrun_broadcast(group, data, data, 100, CTRUN_F32, 1, NULL, &err);
        break;
    }
    /* The root's host may end its broadcast before the message of the others arrives. */
    if (rc < 0 || scene->variant != 5 || scene->wire != WIRE_MIXED)
        check_failure(rc, CTRUN_E_MISMATCH, &err, "calls");
    check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_MISMATCH, &err, "calls");
    ctrun_group_close(group);
    return 0;
}

TORCH_TEST(a_difference_is_a_mismatch_on_all_ranks, "group_wrong_size_on_one_rank")
{
    on_every_wire(differ, 6);
}

WIRES_TEST(a_split_is_named_where_ranks_differ, 1)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *part = NULL;
    struct ctrun_error err;
    int rc = rank == VICTIM ? ctrun_barrier(group, NULL, &err)
                            : ct_group_split(&part, &place, group, 0, NULL, &err);

    check_failure(rc, CTRUN_E_MISMATCH, &err, "calls split");
    CHECK(!part);
    ctrun_group_close(group);
    return 0;
}

WIRES_TEST(a_message_of_another_length_is_a_mismatch, 1)
{
    char data[64] = {0};
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_error err;

    if (rank == 1)
        /* It may be sent before it is refused. */
        (void)ctrun_send(group, data, 10, CTRUN_U8, 3, NULL, &err);
    if (rank == 3)
        check_failure(ctrun_recv(group, data, 20, CTRUN_U8, 1, NULL, &err),
                      CTRUN_E_MISMATCH, &err, "rank 1");
    check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_MISMATCH, &err, "rank 1");
    ctrun_group_close(group);
    return 0;
}

/* The victim gives rank 1 one element too many; small data are there before anybody has compared. */
WIRES_TEST(lengths_that_differ_between_two_are_a_mismatch_on_all, 4)
{
    static float in[LARGE], out[LARGE];
    const struct scene *scene = context;
    const size_t each = scene->variant & 1 ? 20000 : 10;
    struct ctrun_parts from = CTRUN_PARTS_INIT, to = CTRUN_PARTS_INIT;
    size_t gives[SIZE] = {each, each, each, each};
    const size_t gets[SIZE] = {each, each, each, each};
    struct ctrun_group *group = open_together(rank, scene);
    struct ctrun_work *work = NULL;
    struct ctrun_error err;
    char text[120];
    int rc;

    (void)ct_format(
        text, sizeof text,
        "all_to_all_v (collective 2): rank %d gives %zu f32 to rank 1, which "
        "expects %zu from it",
        VICTIM, each + 1, each);
    gives[1] += rank == VICTIM;
    from.counts = gives;
    to.counts = gets;
    rc = ctrun_all_to_all_v(group, in, &from, out, &to, CTRUN_F32,
                            scene->variant & 2 ? IN_BACKGROUND(&work) : NULL, &err);
    if (work)
        rc = ctrun_work_wait(work, &err);
    check_failure(rc, CTRUN_E_MISMATCH, &err, text);
    check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_MISMATCH, &err, text);
    ctrun_group_close(group);
    return 0;
}

/* Rank 1 waits for a message of rank 3, which is in a collective; the others come to it, too. */
WIRES_TEST(a_message_against_a_collective_is_a_mismatch_at_once, 5)
{
    static float data[LARGE];
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, scene);
    struct ctrun_work *work;
    struct ctrun_error err;
    int rc;

    if (rank != 1)
        rc = scene->variant == 3 ? ctrun_all_reduce(group, data, data, LARGE, CTRUN_F32,
                                                    CTRUN_SUM, NULL, &err)
                                 : ctrun_barrier(group, NULL, &err);
    else if (scene->variant == 0 || scene->variant == 3)
        rc = ctrun_recv(group, data, 4, CTRUN_F32, 3, NULL, &err);
    else if (scene->variant == 1)
        rc = ctrun_send(group, data, LARGE, CTRUN_F32, 3, NULL, &err);
    else { /* in the background, before a collective; or alone */
        CHECK_OK(ctrun_recv(group, data, 4, CTRUN_F32, 3, IN_BACKGROUND(&work), &err));
        if (scene->variant == 2)
            check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_MISMATCH, &err,
                          "barrier: this group has failed before: rank ");
        rc = ctrun_work_wait(work, &err);
    }
    /* By TCP it may be sent before it is refused, and barriers whose messages are there may be over by then. */
    for (int i = 0; i < 3 && rc == 0 && scene->variant == 1; i++)
        rc = ctrun_barrier(group, NULL, &err);
    check_failure(rc, CTRUN_E_MISMATCH, &err,
                  scene->variant == 1 ? "rank 1 calls send of 100000 f32 to rank 3"
                                      : "rank 1 calls recv of 4 f32 from rank 3");
    check_failure(rc, CTRUN_E_MISMATCH, &err,
                  scene->variant == 3 ? "rank 3 calls all_reduce of 100000 f32, SUM"
                                      : "rank 3 calls barrier");
    ctrun_group_close(group);
    return 0;
}

/* Each receives before it sends, with a barrier between: who is named is no more the cause than the others. */
static int receive_first(int rank, void *context)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work;
    struct ctrun_error err;
    float x;
    int rc;

    options.work = &work;
    options.timeout_ms = SHORT_MS;
    CHECK_OK(ctrun_recv(group, &x, 1, CTRUN_F32, (rank + 1) % SIZE, &options, &err));
    CHECK(ctrun_barrier(group, NULL, &err) == CTRUN_E_TIMEOUT);
    rc = ctrun_work_wait(work, &err);
    check_failure(rc, CTRUN_E_TIMEOUT, &err,
                  "recv of 1 f32: no answer in time from: rank ");
    check_failure(rc, CTRUN_E_TIMEOUT, &err, " in recv, which waits for rank ");
    ctrun_group_close(group);
    return 0;
}

TEST(a_rank_that_waits_itself_is_said_to_wait)
{
    struct scene scene = {WIRE_SHM, 0};

    assert_int_equal(ranks_run(SIZE, receive_first, &scene), 0);
}

static int different_blocks(int rank, void *context)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_error err;
    void *block;

    check_failure(ctrun_group_alloc(group, rank == VICTIM ? 9000 : 3000, &block, &err),
                  CTRUN_E_MISMATCH, &err, "calls group alloc of 9000 bytes");
    CHECK(!block);
    ctrun_group_close(group);
    return 0;
}

TEST(blocks_of_different_size_are_a_mismatch)
{
    struct scene scene = {WIRE_SHM, 0};

    assert_int_equal(ranks_run(SIZE, different_blocks, &scene), 0);
}

static int one_does_not_allocate(int rank, void *context)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_error err;
    void *block;

    check_failure(rank == VICTIM ? ctrun_barrier(group, NULL, &err)
                                 : ctrun_group_alloc(group, 3000, &block, &err),
                  CTRUN_E_MISMATCH, &err, "calls group alloc of 3000 bytes");
    CHECK(strstr(err.text, "calls barrier") && !strstr(err.text, "collective 0"));
    ctrun_group_close(group);
    return 0;
}

TEST(a_group_alloc_is_named_where_ranks_differ)
{
    struct scene scene = {WIRE_SHM, 0};

    assert_int_equal(ranks_run(SIZE, one_does_not_allocate, &scene), 0);
}

static bool lowest_has_left; /* before this rank opens its memory */
int __real_ct_segment_open_peer_fd(const struct ct_peer *peer, int fd, size_t bytes,
                                   struct ctrun_error *err);
int __wrap_ct_segment_open_peer_fd(const struct ct_peer *peer, int fd, size_t bytes,
                                   struct ctrun_error *err);
int __wrap_ct_segment_open_peer_fd(const struct ct_peer *peer, int fd, size_t bytes,
                                   struct ctrun_error *err)
{
    if (lowest_has_left)
        return ct_fail(err, CTRUN_E_PEER_LOST, "it has left");
    return __real_ct_segment_open_peer_fd(peer, fd, bytes, err);
}

static int lose_the_lowest(int rank, void *context)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_error err;
    void *block;

    lowest_has_left = rank == VICTIM;
    check_failure(ctrun_group_alloc(group, 3000, &block, &err), CTRUN_E_PEER_LOST, &err,
                  "group alloc: rank 0 (");
    CHECK(!block);
    ctrun_group_close(group);
    return 0;
}

TEST(who_leaves_before_its_block_is_open_everywhere_is_lost)
{
    struct scene scene = {WIRE_SHM, 0};

    assert_int_equal(ranks_run(SIZE, lose_the_lowest, &scene), 0);
}

enum {
    MAPPED = 0, /* counter: ranks that have mapped the segment */
    FAILED = 1, /* counter: ranks that could not open the group */
};

static bool is_mapping; /* one rank cannot map the segment, after all others have */
static bool is_full;
void *__real_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    if (!is_mapping || length <= 4096)
        return __real_mmap(at, length, prot, flags, fd, offset);
    if (!is_full) {
        ranks_signal(MAPPED);
        return __real_mmap(at, length, prot, flags, fd, offset);
    }
    ranks_await(MAPPED, SIZE - 1);
    errno = ENOMEM;
    return MAP_FAILED;
}

/* The one that fails lives on, and may try without shared memory. */
static int one_cannot_map(int rank, void *context)
{
    const struct scene *scene = context;
    const struct ctrun_group_options options = options_of(scene, SHORT_MS);
    const struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err;

    is_mapping = true;
    is_full = rank == scene->variant;
    check_failure(ct_group_open(&group, &place, &options, &err), CTRUN_E_SHM, &err,
                  "Cannot allocate memory");
    ranks_signal(FAILED);
    ranks_await(FAILED, SIZE);
    return 0;
}

TEST(a_rank_that_cannot_share_memory_tells_the_others)
{
    for (int rank = 0; rank < 2; rank++) {
        struct scene scene = {WIRE_SHM, rank};

        assert_int_equal(ranks_run(SIZE, one_cannot_map, &scene), 0);
    }
}

/* ---- One of two messages ------------------------------------------------------------------ */

enum {
    STARTED = 0, /* counter: the receives of rank 0 wait */
    SENT = 1,    /* counter: what rank 0 receives is there */
    TOLD = 2,    /* counter: rank 0 has both results */
};

/* A rank without the helper thread: its works continue in its calls only. */
static bool has_no_thread;
int __real_ct_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);
int __wrap_ct_thread_start(pthread_t *thread, void *(*fn)(void *), void *context);
int __wrap_ct_thread_start(pthread_t *thread, void *(*fn)(void *), void *context)
{
    return has_no_thread ? -EAGAIN : __real_ct_thread_start(thread, fn, context);
}

/* Rank 1 sends what rank 0 receives from it, rank 2 something else. Rank 0 looks when both are
 * there. */
static int one_message_differs(int rank, void *context)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *works[2];
    struct ctrun_error err;
    int32_t data[2] = {0, 0};

    has_no_thread = true;
    if (rank == 0) {
        for (int i = 0; i < 2; i++) {
            options.work = &works[i];
            CHECK_OK(ctrun_recv(group, &data[i], 1, CTRUN_I32, i + 1, &options, &err));
        }
        ranks_signal(STARTED);
        ranks_await(SENT, 2);
        CHECK_OK(ctrun_work_wait(works[0], &err));
        CHECK(data[0] == 7);
        check_failure(ctrun_work_wait(works[1], &err), CTRUN_E_MISMATCH, &err,
                      "rank 2");
        ranks_signal(TOLD);
    } else if (rank < 3) {
        data[0] = 7;
        ranks_await(STARTED, 1);
        CHECK_OK(ctrun_send(group, data, (size_t)rank, CTRUN_I32, 0, NULL, &err));
        ranks_signal(SENT);
    }
    ranks_await(TOLD, 1);
    ctrun_group_close(group);
    return 0;
}

TEST(a_message_that_came_is_not_failed_by_another_one)
{
    struct scene scene = {WIRE_SHM, 0};

    assert_int_equal(ranks_run(SIZE, one_message_differs, &scene), 0);
}

/* ---- Ranks that do not come ------------------------------------------------------------- */

static int one_does_not_call(int rank, void *context)
{
    static float data[LARGE];
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, scene);
    struct ctrun_group *slow = open_scene(rank, scene, LONG_MS);
    struct ctrun_error err;
    int rc = 0;

    slow->timeout_ms = SHORT_MS;
    if (rank != VICTIM && scene->variant < 2)
        rc = ctrun_all_reduce(slow, data, data, scene->variant ? LARGE : 1, CTRUN_F32,
                              CTRUN_SUM, NULL, &err);
    else if (rank == 3)
        rc = ctrun_recv(slow, data, 8, CTRUN_U8, VICTIM, NULL, &err);
    if (rc < 0)
        check_failure(rc, CTRUN_E_TIMEOUT, &err, "rank 2");
    CHECK(rank == VICTIM || scene->variant == 2 || rc < 0);
    ranks_signal(0);
    ranks_await(0, SIZE);
    if (rank == VICTIM) /* it calls too late */
        check_failure(ctrun_barrier(slow, NULL, &err), CTRUN_E_TIMEOUT, &err, "rank 2");
    ctrun_group_close(slow);
    ctrun_group_close(group);
    return 0;
}

TORCH_TEST(a_timeout_names_the_rank_that_did_not_call, "group_timeout")
{
    on_every_wire(one_does_not_call, 3);
}

static void check_begins(const struct ctrun_error *err, const char *text)
{
    if (strncmp(err->text, text, strlen(text)) == 0)
        return;
    fprintf(stderr, "wanted '%s...', got: %s\n", text, err->text);
    exit(1);
}

/* Each rank hears of it from the one before, which has heard of it itself. */
WIRES_TEST(a_timeout_is_told_once_by_the_rank_that_has_seen_it, 1)
{
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, scene);
    struct ctrun_error err;

    if (rank == 0)
        group->timeout_ms = SHORT_MS;
    else
        ranks_await(0, (unsigned)rank);
    CHECK(ctrun_barrier(group, NULL, &err) == CTRUN_E_TIMEOUT);
    check_begins(&err, rank == 0 ? "barrier: no answer in time from: rank 1 ("
                                 : "barrier: this group has failed before: rank 0: "
                                   "barrier: no answer in time from: rank 1 (");
    ranks_signal(0);
    ranks_await(0, SIZE);
    ctrun_group_close(group);
    return 0;
}

/* Waits until that rank has begun to open the first group. */
static void await_hello(const struct ct_group_place *place, int rank)
{
    char key[CT_BOOTSTRAP_KEY_MAX];
    struct ctrun_error err;

    (void)ct_format(key, sizeof key, "ctrun/group/7.0.0/hello/%d", rank);
    CHECK_OK(place->bootstrap.wait(NULL, key, ct_deadline_ms(LONG_MS), &err));
}

/* Rank 0 collects the addresses; the other ranks wait for what it reports. Its short deadline
 * begins when only the victim is missing. */
WIRES_TEST(a_rank_that_never_opens_is_named, 1)
{
    const struct scene *scene = context;
    struct ct_group_place place = ranks_place(rank, host_of(scene, rank));
    struct ctrun_group_options options = options_of(scene, rank ? LONG_MS : SHORT_MS);
    struct ctrun_group *group;
    struct ctrun_error err;

    if (rank == VICTIM)
        return 0;
    for (int other = 1; rank == 0 && other < SIZE; other++)
        if (other != VICTIM)
            await_hello(&place, other);
    check_failure(ct_group_open(&group, &place, &options, &err), CTRUN_E_TIMEOUT, &err,
                  "did not connect: rank 2");
    CHECK(!group);
    return 0;
}

static int late(int rank, void *context)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    if (rank == 0)
        ranks_await(0, SIZE - 1);
    else
        ranks_signal(0);
    group = open_scene(rank, context, LONG_MS);
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    return 0;
}

TORCH_TEST(a_late_rank_is_waited_for, "group_late_joiner")
{
    on_every_wire(late, 1);
}

/* Variant 0: the victim gives one member less. Variant 1: member 0 does. Variant 2: the victim
 * gives other members, among which it is member 0. */
WIRES_TEST(other_members_on_one_rank_are_a_mismatch_on_all, 3)
{
    static const int members[][SIZE] = {{0, 1, 2}, {0, 1, 2}, {2, 3}};
    const struct scene *scene = context;
    struct ct_group_place place = ranks_place(rank, host_of(scene, rank));
    struct ctrun_group_options options = options_of(scene, 30000);
    struct ctrun_group *group;
    struct ctrun_error err;

    if (rank == (scene->variant == 1 ? 0 : VICTIM)) {
        options.ranks = members[scene->variant];
        options.rank_count = scene->variant == 2 ? 2 : 3;
    }
    check_failure(ct_group_open(&group, &place, &options, &err), CTRUN_E_MISMATCH, &err,
                  "ctrun_group_split()");
    CHECK(!group);
    return 0;
}

/* ---- Ranks that leave or abort ---------------------------------------------------------- */

WIRES_TEST(a_rank_that_left_is_not_waited_for, 1)
{
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_error err;

    if (rank != VICTIM)
        check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_PEER_LOST, &err,
                      "has left");
    ctrun_group_close(group);
    return 0;
}

/* Rank 1 waits for the victim and rank 0 for rank 1, which sends rank 0 the reason when it
 * closes. */
WIRES_TEST(what_another_rank_tells_names_one_call, 1)
{
    struct ctrun_group *group = open_together(rank, context);
    const char *const before =
        "recv: this group has failed before: "; /* it came late */
    const char *text;
    struct ctrun_error err;
    char data[8];

    if (rank < VICTIM) {
        check_failure(ctrun_recv(group, data, sizeof data, CTRUN_U8,
                                 rank == 0 ? 1 : VICTIM, NULL, &err),
                      CTRUN_E_PEER_LOST, &err, "has left");
        text = strncmp(err.text, before, strlen(before)) == 0
                   ? err.text + strlen(before)
                   : err.text;
        CHECK(strncmp(text, "recv of 8 u8: rank 2", 20) == 0);
        ranks_signal(0);
    } else if (rank > VICTIM)
        ranks_await(0, VICTIM);
    ctrun_group_close(group);
    return 0;
}

static void *abort_group(void *group)
{
    ctrun_group_abort(group);
    return NULL;
}

static int one_aborts(int rank, void *context)
{
    static float data[LARGE];
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, scene);
    struct ctrun_work *work;
    struct ctrun_error err;
    pthread_t thread;
    int rc = 0;

    if (rank == VICTIM) /* the main thread may be in a call then */
        CHECK(pthread_create(&thread, NULL, abort_group, group) == 0);
    /* Calls after the abort: before it, the calls of the others could not end. */
    if (rank == 0)
        ranks_await(0, SIZE - 1);
    if (scene->variant == 0) {
        rc = ctrun_barrier(group, NULL, &err);
    } else if (scene->variant == 1) {
        rc = ctrun_all_reduce(group, data, data, LARGE, CTRUN_F32, CTRUN_SUM, NULL,
                              &err);
    } else {
        rc = ctrun_all_reduce(group, data, data, LARGE, CTRUN_F32, CTRUN_SUM,
                              IN_BACKGROUND(&work), &err);
        if (rc == 0)
            rc = ctrun_work_wait(work, &err);
    }
    check_failure(rc, CTRUN_E_ABORTED, &err, "rank 2");
    check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_ABORTED, &err, "rank 2");
    ranks_signal(0);
    if (rank == VICTIM)
        pthread_join(thread, NULL);
    ctrun_group_abort(group); /* a second call does no harm */
    ctrun_group_close(group);
    return 0;
}

TORCH_TEST(an_abort_ends_the_calls_of_all_ranks, "group_abort_while_waiting")
{
    on_every_wire(one_aborts, 3);
}

WIRES_TEST(each_call_on_a_group_that_has_failed_says_so, 1)
{
    struct ctrun_group *group = open_together(rank, context);
    const int other = (rank + 1) % SIZE;
    struct ctrun_work *work;
    struct ctrun_error err;
    char data[8] = {0};
    void *block;

    if (rank == 0)
        ctrun_group_abort(group);
    CHECK(ctrun_barrier(group, NULL, &err) == CTRUN_E_ABORTED);
    CHECK(ctrun_send(group, data, 8, CTRUN_U8, other, NULL, &err) == CTRUN_E_ABORTED);
    check_begins(&err, "send: this group has failed before: rank 0 aborted");
    CHECK_OK(ctrun_recv(group, data, 8, CTRUN_U8, other, IN_BACKGROUND(&work), &err));
    CHECK(ctrun_work_wait(work, &err) == CTRUN_E_ABORTED);
    check_begins(&err, "recv: this group has failed before: rank 0 aborted");
    CHECK(ctrun_group_alloc(group, 8, &block, &err) == CTRUN_E_ABORTED);
    check_begins(&err, "group alloc: this group has failed before: rank 0 aborted");
    ctrun_group_close(group);
    return 0;
}

WIRES_TEST(works_outlive_their_group, 1)
{
    static float data[2][LARGE];
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, scene);
    struct ctrun_work *works[2];
    struct ctrun_error err;
    int rc;

    if (rank == 0) {
        for (int i = 0; i < 2; i++)
            CHECK_OK(ctrun_all_reduce(group, data[i], data[i], LARGE, CTRUN_F32,
                                      CTRUN_SUM, IN_BACKGROUND(&works[i]), &err));
        ctrun_group_close(group); /* no other rank calls: they cannot end */
        for (int i = 0; i < 2; i++)
            CHECK(ctrun_work_wait(works[i], &err) == CTRUN_E_ABORTED);
        ranks_signal(0);
        return 0;
    }
    ranks_await(0, 1);
    rc = ctrun_barrier(group, NULL, &err);
    if (scene->wire == WIRE_SHM) /* the first call was posted in shared memory */
        check_failure(rc, CTRUN_E_MISMATCH, &err, "rank 0 calls");
    else
        check_failure(rc, CTRUN_E_ABORTED, &err, "rank 0 closed the group");
    ctrun_group_close(group);
    return 0;
}

/* ---- Ranks that die --------------------------------------------------------------------- */

/* Exit codes of ranks that got an error. */
enum {
    NOT_OPEN = 10, /* while they opened the group */
    LOST = 11,     /* in a call, and it names the victim */
    OTHER = 12     /* in a call: another rank may have given up its opening */
};

/* Opens a group and makes all kinds of calls. The victim is killed on the way. */
static int live_and_die(int rank, void *context)
{
    static float data[LARGE], all[SIZE * LARGE];
    const struct scene *scene = context;
    struct ct_group_place place = ranks_place(rank, host_of(scene, rank));
    struct ctrun_group_options options = options_of(scene, SHORT_MS);
    struct ctrun_group *group = NULL;
    struct ctrun_error err = {.text = ""};
    void *block;
    int rc;

    if (rank == VICTIM)
        ranks_await(1, 1); /* until the parent traces this process */
    rc = ct_group_open(&group, &place, &options, &err);
    if (rc == 0) {
        group->timeout_ms = LONG_MS; /* from here on a death is noticed */
        rc = ctrun_group_alloc(group, sizeof data, &block, &err);
    }
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = ctrun_all_reduce(group, data, data, i ? LARGE : 5, CTRUN_F32, CTRUN_SUM,
                              NULL, &err);
        if (rc == 0)
            rc = ctrun_broadcast(group, data, data, i ? LARGE : 5, CTRUN_F32, VICTIM,
                                 NULL, &err);
        if (rc == 0)
            rc = ctrun_all_gather(group, data, all, i ? LARGE : 5, CTRUN_F32, NULL,
                                  &err);
    }
    if (rank == VICTIM)
        _exit(rc < 0);
    if (rc < 0 && group) { /* the group stays dead */
        struct ctrun_error again;
        CHECK(ctrun_barrier(group, NULL, &again) == rc);
    }
    ctrun_group_close(group);
    if (rc == 0)
        return 0;
    /* While the group is being opened, a rank may be missing without an error, and no rank passes
     * the first cause on: the error may name a survivor that gave up and left. */
    CHECK(strstr(err.text, "rank ") && !strstr(err.text, "rank -"));
    CHECK(rc == CTRUN_E_PEER_LOST || rc == CTRUN_E_TIMEOUT);
    if (!group)
        return NOT_OPEN;
    if (rc == CTRUN_E_PEER_LOST && strstr(err.text, "rank 2"))
        return LOST;
    fprintf(stderr, "rank %d got %d: %s\n", rank, rc, err.text);
    return OTHER;
}

enum end {
    KILLED,
    DONE,   /* it had made all its calls */
    GAVE_UP /* SHORT_MS may have passed before it died: the machine is busy */
};

/* Lets the victim make `count` system calls and kills it, unless it ends before. From busy_ms on a
 * rank may have given up. */
static enum end kill_after_calls(pid_t victim, int count, uint64_t busy_ms)
{
    int status;

    assert_int_equal(ptrace(PTRACE_SEIZE, victim, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, victim, NULL, NULL), 0);
    assert_int_equal(waitpid(victim, &status, 0), victim);
    ranks_signal(1);
    for (int stops = 0; stops < 2 * count; stops++) { /* entry and exit of each call */
        int signal = status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status)
                                                                      : 0;
        assert_int_equal(ptrace(PTRACE_SYSCALL, victim, NULL, signal), 0);
        assert_int_equal(waitpid(victim, &status, 0), victim);
        if (WIFEXITED(status))
            return WEXITSTATUS(status) == 0 ? DONE : GAVE_UP;
    }
    kill(victim, SIGKILL);
    return ct_left_ms(busy_ms) ? KILLED : GAVE_UP;
}

/* A rank may be done already: the victim may die after its work. One that is not has lost the victim, also where this
 * ends by itself, because it does not close the group. */
static bool is_fine(const int statuses[SIZE], int rank, enum end end)
{
    bool has_given_up = false;
    int code = WEXITSTATUS(statuses[rank]);

    for (int i = 0; i < SIZE; i++)
        has_given_up = has_given_up || (end == GAVE_UP && WIFEXITED(statuses[i]) &&
                                        WEXITSTATUS(statuses[i]) == NOT_OPEN);
    return WIFEXITED(statuses[rank]) &&
           (code == 0 || code == LOST || (end != DONE && code == NOT_OPEN) ||
            (code == OTHER && has_given_up));
}

TORCH_TEST(survivors_learn_of_a_death_at_every_stage,
           "group_peer_killed_during_all_reduce")
{
    for (int wire = 0; wire < WIRES; wire++) {
        struct scene scene = {(enum wire)wire, 0};
        enum end end = KILLED;
        int killed = 0;
        for (int calls = 1; end != DONE && calls < 5000; calls += 1 + calls / 3) {
            const uint64_t busy_ms = ct_deadline_ms(SHORT_MS / 2);
            struct ranks *ranks = ranks_start(SIZE, live_and_die, &scene);
            int statuses[SIZE];
            end = kill_after_calls(ranks_pid(ranks, VICTIM), calls, busy_ms);
            (void)ranks_finish(ranks, statuses);
            killed += WIFSIGNALED(statuses[VICTIM]);
            for (int rank = 0; rank < SIZE; rank++)
                if (rank != VICTIM && !is_fine(statuses, rank, end))
                    fail_msg(
                        "wire %d, killed after %d system calls: rank %d: status %#x",
                        wire, calls, rank, (unsigned)statuses[rank]);
        }
        assert_true(killed > 5);
    }
}

/* Variant 0: the victim is killed. Variant 1: its program ends well, but does not close the group. */
static int ends_while_others_wait(int rank, void *context)
{
    const struct scene *scene = context;
    struct ctrun_group *group = open_together(rank, context);
    struct ctrun_error err;

    if (rank == VICTIM && scene->variant == 0)
        raise(SIGKILL);
    if (rank == VICTIM)
        _exit(0);
    check_failure(ctrun_barrier(group, NULL, &err), CTRUN_E_PEER_LOST, &err, "rank 2");
    CHECK(strstr(err.text, ") has ended without ctrun_group_close()"));
    ctrun_group_close(group);
    return 0;
}

static int node_is_lost(void *context, uint32_t losses, bool leaves_node,
                        struct ctrun_error *err)
{
    int *looks = context;

    return !leaves_node || ++*looks < 3
               ? 0
               : ct_fail(err, CTRUN_E_PEER_LOST, "node odd is lost");
}

/* Rank 1 plays the lost node: it never calls. Ranks 0 and 2 are on this node. */
static int waits_for_a_lost_node(int rank, void *context)
{
    const int members[] = {0, 2};
    struct scene *scene = context;
    struct ctrun_group_options options = options_of(scene, LONG_MS);
    struct ct_group_place place = ranks_place(rank, rank % 2 ? "odd" : "even");
    struct ctrun_group *world, *local;
    struct ctrun_error err = {.text = ""};
    double data[LARGE] = {0};
    int looks = 0;

    place.losses = (struct ct_loss_watch){.check = node_is_lost, .context = &looks};
    place.local_count = 3; /* as if rank 1 were on this node */
    options.ranks = members;
    options.rank_count = 2;
    CHECK_OK(ct_group_open(&local, &place, &options, &err));
    place.local_count = 1;
    options.ranks = NULL;
    looks = -1000000; /* no node is lost while the group is opened */
    CHECK_OK(ct_group_open(&world, &place, &options, &err));
    CHECK_OK(ctrun_barrier(world, NULL, &err));
    looks = 0;
    if (rank != 1) {
        CHECK(ctrun_all_reduce(world, data, data, scene->variant ? LARGE : 1, CTRUN_F64,
                               CTRUN_SUM, NULL, &err) == CTRUN_E_PEER_LOST);
        CHECK(strstr(err.text, "node odd is lost"));
        CHECK_OK(
            ctrun_all_reduce(local, data, data, 1, CTRUN_F64, CTRUN_SUM, NULL, &err));
    }
    ranks_signal(MET);
    ranks_await(MET, 3);
    ctrun_group_close(world);
    ctrun_group_close(local);
    return 0;
}

TEST(who_waits_for_a_lost_node_is_told)
{
    for (int variant = 0; variant < 2; variant++) {
        struct scene scene = {WIRE_MIXED, variant};

        assert_int_equal(ranks_run(3, waits_for_a_lost_node, &scene), 0);
    }
}

TEST(the_end_of_a_rank_is_told_to_those_who_wait)
{
    for (int wire = 0; wire < WIRES; wire++)
        for (int variant = 0; variant < 2; variant++) {
            struct scene scene = {(enum wire)wire, variant};
            /* The victim that is killed. */
            assert_int_equal(ranks_run(SIZE, ends_while_others_wait, &scene),
                             variant == 0);
        }
}

/* ---- Unknown clients and orphans ------------------------------------------------------ */

static int with_an_unknown_client(int rank, void *context)
{
    struct ctrun_group_options options = options_of(context, LONG_MS);
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err;
    struct ct_peer peer;
    size_t length;
    void *hello;
    char junk[300];
    int fds[3] = {-1, -1, -1};

    if (rank == SIZE - 1) { /* member 0 listens before it publishes its hello */
        CHECK_OK(place.bootstrap.get(NULL, "ctrun/group/7.0.0/hello/0", &hello, &length,
                                     ct_deadline_ms(LONG_MS), &err));
        CHECK(ct_peer_decode(&peer, hello, length) == 0);
        free(hello);
        memset(junk, 'x', sizeof junk);
        for (int i = 0; i < 3; i++) {
            const struct ct_addr *addr =
                &peer.addrs[peer.addr_count - 1]; /* loopback */
            fds[i] = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            CHECK(connect(fds[i], &addr->any, addr->length) == 0);
            CHECK(i == 0 || send(fds[i], junk, i == 1 ? 3 : sizeof junk, 0) > 0);
        }
    }
    CHECK_OK(ct_group_open(&group, &place, &options, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return 0;
}

TEST(unknown_clients_do_not_get_into_the_mesh)
{
    struct scene scene = {WIRE_TCP, 0};

    assert_int_equal(ranks_run(SIZE, with_an_unknown_client, &scene), 0);
}

enum {
    SILENT_CLIENTS = 700, /* several times the number that may wait to greet */
};

static int behind_silent_clients(int rank, void *context)
{
    struct ctrun_group_options options = options_of(context, 20000);
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err;
    struct ct_peer peer;
    size_t length;
    void *hello;

    if (rank == SIZE - 1) { /* the sockets are closed with this process */
        CHECK_OK(place.bootstrap.get(NULL, "ctrun/group/7.0.0/hello/0", &hello, &length,
                                     ct_deadline_ms(LONG_MS), &err));
        CHECK(ct_peer_decode(&peer, hello, length) == 0);
        free(hello);
        for (int i = 0; i < SILENT_CLIENTS; i++) {
            const struct ct_addr *addr = &peer.addrs[peer.addr_count - 1];
            const int fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

            CHECK(connect(fd, &addr->any, addr->length) == 0);
        }
    }
    CHECK_OK(ct_group_open(&group, &place, &options, &err));
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    ctrun_group_close(group);
    return 0;
}

TEST(silent_clients_do_not_keep_the_peers_out)
{
    struct scene scene = {WIRE_TCP, 0};

    assert_int_equal(ranks_run(SIZE, behind_silent_clients, &scene), 0);
}

static int count_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    if (!folder)
        return -1;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* The number of this process's mappings of files whose path contains the word; -1: not known. */
static int count_mappings(const char *word)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;

    if (!maps)
        return -1;
    while (fgets(line, sizeof line, maps))
        count += strstr(line, word) ? 1 : 0;
    fclose(maps);
    return count;
}

WIRES_TEST(nothing_is_left_behind, 1)
{
    int fds = -1, mappings = -1;
    struct ctrun_error err;
    void *block;

    for (int i = 0; i < 3; i++) {
        struct ctrun_group *group = open_scene(rank, context, LONG_MS);
        CHECK_OK(ctrun_group_alloc(group, 100000, &block, &err));
        CHECK(count_mappings("/dev/shm/") == 0); /* no name that could be left there */
        CHECK_OK(ctrun_barrier(group, NULL, &err));
        ctrun_group_close(group);
        if (i > 0)
            continue;
        /* The record of calls stays until the process ends: flight.h. */
        fds = count_fds();
        mappings = count_mappings("memfd:ctrun");
    }
    CHECK(count_fds() == fds);
    CHECK(count_mappings("memfd:ctrun") == mappings && mappings <= 1);
    return 0;
}

TEST(damaged_hellos_are_refused)
{
    struct ct_peer peer = {
        .rank = 3, .pid = 12, .host_id = "h", .name = "n", .addr_count = 2};
    unsigned char bytes[CT_HELLO_MAX_BYTES];
    struct ct_peer back;
    int length;

    assert_int_equal(ct_addr_parse("10.1.2.3", 99, &peer.addrs[0]), 0);
    assert_int_equal(ct_addr_parse("fd00::1", 99, &peer.addrs[1]), 0);
    length = ct_peer_encode(&peer, bytes, sizeof bytes);
    assert_true(length > 0);
    assert_int_equal(ct_peer_decode(&back, bytes, (size_t)length), 0);
    assert_int_equal(back.rank, 3);
    assert_true(ct_addr_is_same_host(&back.addrs[1], &peer.addrs[1]));
    for (int cut = 0; cut < length; cut++)
        assert_int_equal(ct_peer_decode(&back, bytes, (size_t)cut), -EBADMSG);
    bytes[0] = 99; /* of a future version */
    assert_int_equal(ct_peer_decode(&back, bytes, (size_t)length), -EBADMSG);
}
