/* SPDX-License-Identifier: Apache-2.0 */
/* Posts and waits in shared memory, with threads as members, so that the thread sanitizer sees
 * every access. The numbers of spins and yields vary, so that members spin, yield and sleep. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/comm/host/exchange.h"
#include "worker_sdk/comm/host/host_shm.h"

enum {
    MEMBERS = 4,
    BARRIERS = 3000
};

/* As a kernel with pages of 64 KiB (arm64). */
void *__real_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t length, int prot, int flags, int fd, off_t offset)
{
    if (offset % 65536 == 0)
        return __real_mmap(at, length, prot, flags, fd, offset);
    errno = EINVAL;
    return MAP_FAILED;
}

/* Time goes on only where a test says so; 0: the real time. */
static _Atomic uint64_t fake_ms;
uint64_t __real_ct_now_ms(void);
uint64_t __wrap_ct_now_ms(void);
uint64_t __wrap_ct_now_ms(void)
{
    return fake_ms ? fake_ms : __real_ct_now_ms();
}

int __real_ct_left_ms(uint64_t deadline_ms);
int __wrap_ct_left_ms(uint64_t deadline_ms);
int __wrap_ct_left_ms(uint64_t deadline_ms)
{
    return !fake_ms                ? __real_ct_left_ms(deadline_ms)
           : deadline_ms > fake_ms ? (int)(deadline_ms - fake_ms)
                                   : 0;
}

struct shared {
    void *head;
    void *body;
    struct ct_peer peers[MEMBERS];
    const struct ct_peer *by_index[MEMBERS];
    int spins, yields; /* of all members; -1: as the segment chooses */
    int values[MEMBERS];
    _Atomic int failures;
};

struct member {
    struct shared *shared;
    int index;
};

static void expect_true(struct shared *shared, bool condition)
{
    if (!condition)
        atomic_fetch_add(&shared->failures, 1);
}

static void join(struct ct_segment *segment, const struct member *member)
{
    struct shared *shared = member->shared;
    const struct ct_segment_setup setup = {.peers = shared->by_index,
                                           .size = MEMBERS,
                                           .me = member->index,
                                           .deadline_ms = ct_deadline_ms(30000)};

    expect_true(shared, ct_segment_open_at(segment, shared->head, shared->body, &setup,
                                           NULL) == 0);
    if (shared->spins >= 0)
        segment->spins = segment->spins_now = shared->spins;
    if (shared->yields >= 0)
        segment->yields = segment->yields_now = shared->yields;
}

static int wait_posts(struct ct_segment *segment, uint64_t number,
                      const struct ct_call *call, struct ctrun_error *err)
{
    const struct ct_wait wait = ct_segment_posts_wait(number, call);

    return ct_segment_wait(segment, &wait, err);
}

/* Plain memory, written before a barrier and read after it: a broken barrier gives a wrong value or
 * a data race. */
static void *stress(void *context)
{
    const struct member *member = context;
    struct shared *shared = member->shared;
    const struct ct_call call = {.kind = CT_CALL_BARRIER,
                                 .deadline_ms = ct_deadline_ms(60000)};
    struct ct_segment segment;
    uint64_t number = 0;

    join(&segment, member);
    for (int i = 1; i <= BARRIERS; i++) {
        shared->values[member->index] = i;
        ct_segment_post(&segment, ++number);
        expect_true(shared, wait_posts(&segment, number, &call, NULL) == 0);
        for (int m = 0; m < MEMBERS; m++)
            expect_true(shared, shared->values[m] == i);
        ct_segment_post(&segment, ++number); /* no member writes before all have read */
        expect_true(shared, wait_posts(&segment, number, &call, NULL) == 0);
    }
    ct_segment_close(&segment);
    return NULL;
}

/* 0 with 1, and 2 with 3: both send and receive. */
static void swap_with_neighbour(struct shared *shared, struct ct_host_shm *shm,
                                int index, float *data, size_t count)
{
    static const int local_of[MEMBERS] = {0, 1, 2, 3};
    struct ct_exchange exchange = {.size = MEMBERS,
                                   .me = index,
                                   .peers = shared->peers,
                                   .local_of = local_of,
                                   .segment = ct_host_shm_segment(shm)};
    float *theirs = calloc(count, sizeof *theirs);
    struct ct_comm_message messages[] = {{.peer = index ^ 1,
                                          .is_send = true,
                                          .from = data,
                                          .bytes = count * sizeof *data,
                                          .dtype = CTRUN_F32},
                                         {.peer = index ^ 1,
                                          .to = theirs,
                                          .bytes = count * sizeof *data,
                                          .dtype = CTRUN_F32}};
    struct ct_call call = {.kind = CT_CALL_BATCH,
                           .messages = messages,
                           .message_count = 2,
                           .deadline_ms = ct_deadline_ms(60000)};
    struct ctrun_error err;

    data[0] = (float)index;
    expect_true(shared, ct_exchange_init(&exchange) == 0);
    while (!call.is_complete)
        expect_true(shared, ct_exchange_move(&exchange, &call, true, &err) == 1);
    expect_true(shared, theirs[0] == (float)(index ^ 1));
    ct_exchange_deinit(&exchange);
    free(theirs);
}

/* All kinds of calls on one mapping. */
static void *collectives(void *context)
{
    enum {
        COUNT = 70000
    };
    const struct member *member = context;
    struct shared *shared = member->shared;
    struct ct_segment segment;
    struct ct_host_shm *shm = NULL;
    float *data = calloc(COUNT, sizeof *data);
    struct ctrun_error err;

    join(&segment, member);
    expect_true(shared, ct_host_shm_create(&shm, &segment, &err) == 0);
    for (size_t count = 7; count <= COUNT; count *= 10) {
        struct ct_call call = {.kind = CT_CALL_ALL_REDUCE,
                               .in = data,
                               .out = data,
                               .count = count,
                               .bytes = count * sizeof *data,
                               .dtype = CTRUN_F32,
                               .op = CTRUN_SUM,
                               .divisor = 1,
                               .deadline_ms = ct_deadline_ms(60000)};
        for (size_t i = 0; i < count; i++)
            data[i] = (float)(member->index + 1);
        expect_true(shared, ct_host_shm_run(shm, &call, &err) == 0);
        for (size_t i = 0; i < count; i++)
            expect_true(shared, data[i] == MEMBERS * (MEMBERS + 1) / 2);
        call.kind = CT_CALL_BROADCAST;
        call.peer = 1;
        data[count - 1] = (float)member->index;
        expect_true(shared, ct_host_shm_run(shm, &call, &err) == 0);
        expect_true(shared, data[count - 1] == 1);
        swap_with_neighbour(shared, shm, member->index, data, count);
    }
    ct_host_shm_destroy(shm);
    free(data);
    return NULL;
}

static void run_members(void *(*body)(void *), int spins, int yields)
{
    struct shared *shared = calloc(1, sizeof *shared);
    struct member members[MEMBERS];
    pthread_t threads[MEMBERS];

    shared->head = aligned_alloc(4096, ct_segment_head_bytes());
    shared->body = aligned_alloc(4096, ct_segment_bytes(MEMBERS));
    memset(shared->head, 0, ct_segment_head_bytes());
    memset(shared->body, 0, ct_segment_bytes(MEMBERS));
    shared->spins = spins;
    shared->yields = yields;
    for (int i = 0; i < MEMBERS; i++) {
        shared->peers[i] = (struct ct_peer){.rank = i, .pid = getpid()};
        shared->by_index[i] = &shared->peers[i];
    }
    for (int i = 0; i < MEMBERS; i++) {
        members[i] = (struct member){shared, i};
        assert_int_equal(pthread_create(&threads[i], NULL, body, &members[i]), 0);
    }
    for (int i = 0; i < MEMBERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared->failures, 0);
    free(shared->head);
    free(shared->body);
    free(shared);
}

TEST(barrier_holds_while_members_spin)
{
    run_members(stress, 50, 1000);
}

TEST(no_wake_up_is_lost_when_members_sleep)
{
    run_members(stress, 0, 0);
}

TEST(barrier_holds_between_giving_way_and_sleep)
{
    run_members(stress, 1, 1);
}

TEST(collectives_have_no_data_race)
{
    run_members(collectives, -1, -1);
    run_members(collectives, 0, 0);
}

/* For a test that plays all members by itself: member 0 opens the segment that all others have. */
static struct ct_segment open_alone(struct shared *shared)
{
    const struct member me = {shared, 0};
    struct ct_shm_member *others;
    struct ct_segment segment;

    *shared = (struct shared){.head = aligned_alloc(4096, ct_segment_head_bytes()),
                              .body = aligned_alloc(4096, ct_segment_bytes(MEMBERS))};
    memset(shared->head, 0, ct_segment_head_bytes());
    memset(shared->body, 0, ct_segment_bytes(MEMBERS));
    others = shared->body;
    for (int i = 0; i < MEMBERS; i++) {
        shared->peers[i] = (struct ct_peer){.rank = i, .pid = getpid()};
        shared->by_index[i] = &shared->peers[i];
        atomic_store(&others[i].has_joined, 1);
    }
    join(&segment, &me);
    assert_int_equal(shared->failures, 0);
    return segment;
}

static void close_alone(struct shared *shared, struct ct_segment *segment)
{
    ct_segment_close(segment);
    free(shared->head);
    free(shared->body);
}

/* Called while member 0 looks: member 1 fails, sets the reason, and leaves. */
static int fail_and_leave(void *context, struct ctrun_error *err)
{
    struct ct_segment *segment = context;

    (void)ct_verdict_set(segment->verdict, CTRUN_E_MISMATCH, "the calls differ");
    atomic_store(&segment->members[1].has_left, 1);
    return 0;
}

TEST(who_leaves_with_a_reason_is_not_taken_for_lost)
{
    const struct ct_call call = {.kind = CT_CALL_BARRIER,
                                 .deadline_ms = ct_deadline_ms(60000)};
    struct shared shared;
    struct ct_segment segment = open_alone(&shared);
    struct ctrun_error err;

    segment.watch = (struct ct_watch){fail_and_leave, &segment};
    ct_segment_post(&segment, 1);
    assert_int_equal(wait_posts(&segment, 1, &call, &err), CTRUN_E_MISMATCH);
    assert_string_equal(err.text, "the calls differ");
    close_alone(&shared, &segment);
}

enum {
    BEGIN_MS = 1000,
    END_MS = 5000, /* of a wait */
    STEP_MS = 500
};

static uint32_t looks_at_end;

static uint32_t looks_of(const struct ct_segment *segment, int member)
{
    return atomic_load(&segment->members[member].looks);
}

static uint32_t lookers; /* a bit for each member that looks around */

static int let_others_look(void *context, struct ctrun_error *err)
{
    struct ct_segment *segment = context;

    for (int i = 0; i < segment->size; i++)
        atomic_fetch_add(&segment->members[i].looks, lookers >> i & 1);
    fake_ms += STEP_MS;
    if (fake_ms == END_MS)
        looks_at_end = looks_of(segment, 0);
    return 0;
}

static bool never(const struct ct_segment *segment, const struct ct_wait *wait)
{
    return false;
}

static bool is_first(const struct ct_segment *segment, const struct ct_wait *wait,
                     int member)
{
    return member == 1;
}

/* Member 0 waits for member 1 until its deadline. */
static void wait_in_row(struct ct_segment *segment, struct ctrun_error *err)
{
    const struct ct_wait wait = {.is_met = never,
                                 .is_awaited = is_first,
                                 .deadline_ms = END_MS,
                                 .is_in_row = true};

    segment->watch = (struct ct_watch){let_others_look, segment};
    fake_ms = BEGIN_MS;
    assert_int_equal(ct_segment_wait(segment, &wait, err), CTRUN_E_TIMEOUT);
    fake_ms = 0;
}

TEST(who_does_not_wait_in_a_row_is_known_at_the_deadline)
{
    struct shared shared;
    struct ct_segment segment = open_alone(&shared);
    struct ctrun_error err;

    lookers = 1u << 1 | 1u << 3;
    wait_in_row(&segment, &err);
    assert_non_null(strstr(err.text, "from: rank 1 ("));
    assert_non_null(strstr(err.text, "not waiting in this group: rank 2 ("));
    assert_null(strstr(err.text, "rank 3 ("));
    assert_int_equal(looks_of(&segment, 0),
                     looks_at_end); /* it has not waited longer */
    close_alone(&shared, &segment);
}

/* One of them computes while its helper receives, and has no part in it: which one is not known. */
TEST(all_that_do_not_wait_are_named_at_the_deadline)
{
    struct shared shared;
    struct ct_segment segment = open_alone(&shared);
    struct ctrun_error err;

    lookers = 1u << 1;
    wait_in_row(&segment, &err);
    assert_non_null(strstr(err.text, "computing or stopped, "));
    assert_non_null(strstr(err.text, "group: rank 2 ("));
    assert_non_null(strstr(err.text, ", rank 3 ("));
    close_alone(&shared, &segment);
}

TEST(only_who_is_awaited_is_named_where_it_does_not_wait_itself)
{
    struct shared shared;
    struct ct_segment segment = open_alone(&shared);
    struct ctrun_error err;

    lookers = 1u << 3;
    wait_in_row(&segment, &err);
    assert_non_null(strstr(err.text, "from: rank 1 ("));
    assert_null(strstr(err.text, "rank 2 ("));
    close_alone(&shared, &segment);
}

/* The thread of queue.c, beside a program that is in no call. */
static void *look_as_helper(void *context)
{
    const struct ct_wait wait = {
        .is_met = never, .is_awaited = is_first, .deadline_ms = UINT64_MAX};
    struct ct_segment *segment = context;
    const uint32_t bell = ct_segment_arm(segment);

    (void)ct_segment_look(segment, &wait, NULL);
    ct_segment_rest(segment, bell, false);
    return NULL;
}

TEST(a_member_whose_helper_alone_looks_does_not_wait)
{
    const struct ct_wait wait = {
        .is_met = never, .is_awaited = is_first, .deadline_ms = UINT64_MAX};
    struct shared shared;
    struct ct_segment segment = open_alone(&shared);
    const uint32_t before = looks_of(&segment, 0);
    struct ctrun_error err;
    pthread_t helper;

    assert_int_equal(pthread_create(&helper, NULL, look_as_helper, &segment), 0);
    assert_int_equal(pthread_join(helper, NULL), 0);
    assert_true(segment.looked_ms > 0);
    assert_int_equal(looks_of(&segment, 0), before);
    segment.looked_ms = 0;
    assert_int_equal(ct_segment_look(&segment, &wait, &err),
                     0); /* the program itself */
    assert_int_equal(looks_of(&segment, 0), before + 1);
    close_alone(&shared, &segment);
}

/* The descriptor that rank 0 sent is closed, and its number belongs to a directory, a short file, a
 * device or a file on disk now. */
TEST(a_number_that_is_something_else_by_now_is_a_rank_that_left)
{
    struct ct_peer peer = {.rank = 0, .pid = getpid(), .name = "node1"};
    struct ctrun_error err;
    int memory = ct_segment_new_memory(4096);
    int others[] = {open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                    ct_segment_new_memory(0), open("/dev/null", O_RDWR | O_CLOEXEC),
                    open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    int copy;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_true(others[i] >= 0);
        assert_int_equal(ct_segment_open_peer_fd(&peer, others[i], 4096, &err),
                         CTRUN_E_PEER_LOST);
        assert_non_null(strstr(err.text, "rank 0"));
        assert_non_null(strstr(err.text, "has left"));
        close(others[i]);
        assert_int_equal(ct_segment_open_peer_fd(&peer, others[i], 4096, &err),
                         CTRUN_E_PEER_LOST);
    }
    copy = ct_segment_open_peer_fd(&peer, memory, 4096, &err);
    assert_true(copy >= 0);
    close(copy);
    close(memory);
}

TEST(a_segment_is_mapped_whatever_the_size_of_a_page)
{
    const struct ct_call call = {.kind = CT_CALL_BARRIER,
                                 .deadline_ms = ct_deadline_ms(60000)};
    struct ct_peer peer = {.rank = 0, .pid = getpid()};
    const struct ct_peer *peers[] = {&peer};
    struct ct_segment_setup setup = {
        .peers = peers, .size = 1, .deadline_ms = ct_deadline_ms(60000)};
    struct ct_segment segment;
    struct ctrun_error err;

    if (ct_segment_create(&setup.own_fd, &err) < 0 ||
        ct_segment_open(&segment, &setup, &err) < 0)
        fail_msg("%s", err.text);
    ct_segment_post(&segment, 1);
    assert_int_equal(wait_posts(&segment, 1, &call, &err), 0);
    segment.result[2 * CT_CHUNK_BYTES - 1] = 1; /* its last byte */
    ct_segment_close(&segment);
    close(setup.own_fd);
}

static long looks, met_at;

static bool is_met_by_now(const struct ct_segment *segment, const struct ct_wait *wait)
{
    return ++looks >= met_at;
}

static bool nobody(const struct ct_segment *segment, const struct ct_wait *wait,
                   int member)
{
    return false;
}

/* The number of looks of a wait that succeeds at look `look`, or stops before it sleeps. */
static long wait_until_look(struct ct_segment *segment, long look)
{
    const struct ct_wait wait = {.is_met = is_met_by_now, .is_awaited = nobody};

    looks = 0;
    met_at = look;
    (void)ct_segment_wait(segment, &wait, NULL);
    return looks;
}

/* On one processor, or beside other programs, a member that spins keeps the other one from
 * posting. */
TEST(spins_and_yields_that_do_not_pay_become_fewer)
{
    enum {
        SPINS = 1000,
        YIELDS = 20,
        OFTEN = 12
    };
    struct ct_segment segment = {.size = 1,
                                 .spins = SPINS,
                                 .spins_now = SPINS,
                                 .yields = YIELDS,
                                 .yields_now = YIELDS};

    assert_true(wait_until_look(&segment, LONG_MAX) > SPINS);
    for (int i = 0; i < OFTEN; i++)
        (void)wait_until_look(&segment, LONG_MAX);
    assert_true(wait_until_look(&segment, LONG_MAX) < YIELDS);
    for (int i = 0; i < OFTEN; i++) /* a wait that ends at its first spin: more spins */
        assert_int_equal(wait_until_look(&segment, 2), 2);
    assert_true(wait_until_look(&segment, LONG_MAX) > SPINS);
    segment.spins = segment.spins_now = 0; /* more members than processors: no spins */
    (void)wait_until_look(&segment, 2);
    assert_int_equal(segment.spins_now, 0);
}
