/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/hold/hold.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/str.h"

/* A worker, and the last answer that it got. */
struct peer {
    struct hold_client *client;
    int answers;
    int code;
    uint64_t bytes;
    bool has_descriptor;
};

static struct {
    struct loop *loop;
    struct hold *hold;
    char folder[64];
    int written, lost, left, idle, asked;
    char why[256];
    bool may_write;
    /* The threads that may not go on before the test lets them: two, by the number of the call. */
    bool holds;
    atomic_int calls;
    sem_t came, may_go[2];
    pid_t first; /* the thread of the first call */
} here;

/* Threads of the product that have not ended: one that was given up goes on for a while. */
static atomic_int running;

struct work {
    void *(*fn)(void *);
    void *job;
};

static void *run(void *context)
{
    const struct work work = *(struct work *)context;

    free(context);
    work.fn(work.job);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

int __real_blocking_call_start(void *(*fn)(void *), void *job);
int __wrap_blocking_call_start(void *(*fn)(void *), void *job);
int __wrap_blocking_call_start(void *(*fn)(void *), void *job)
{
    struct work *work = malloc(sizeof *work);

    assert_non_null(work);
    *work = (struct work){fn, job};
    atomic_fetch_add(&running, 1);
    assert_int_equal(__real_blocking_call_start(run, work), 0);
    return 0;
}

enum {
    CALL_FIRST = 0, /* the first writer, before its bytes */
    CALL_NAME = 2,  /* the second writer, before it names the file */
};

static void wait_for(sem_t *semaphore)
{
    struct timespec until;

    assert_int_equal(clock_gettime(CLOCK_REALTIME, &until), 0);
    until.tv_sec += 120;
    assert_int_equal(sem_timedwait(semaphore, &until), 0);
}

static bool may_write(void)
{
    const int call = here.holds ? atomic_fetch_add(&here.calls, 1) : -1;

    if (call == CALL_FIRST)
        here.first = (pid_t)syscall(SYS_gettid);
    if (call == CALL_FIRST || call == CALL_NAME) {
        sem_post(&here.came);
        while (sem_wait(&here.may_go[call == CALL_NAME]) < 0)
            ;
    }
    return here.may_write;
}

static void reply(void *context, void *to, const struct ct_worker_hold_reply *message,
                  int fd)
{
    struct peer *peer = to;

    assert_ptr_equal(context, &here);
    peer->answers++;
    peer->code = message->code;
    peer->bytes = message->bytes;
    peer->has_descriptor = fd >= 0;
}

static void on_end(void *context, const struct hold_end *end)
{
    assert_ptr_equal(context, &here);
    here.written += !end->why;
    here.lost += end->why != NULL;
    here.left += end->is_left;
    if (end->why)
        (void)ct_copy(here.why, sizeof here.why, end->why->text);
}

static void on_idle(void *context)
{
    here.idle++;
    loop_stop(here.loop);
}

static uint64_t find_max(void)
{
    here.asked++;
    return 100;
}

static int setup(void **state)
{
    struct hold_options options = {.find_max_bytes = find_max,
                                   .may_write = may_write,
                                   .context = &here,
                                   .reply = reply,
                                   .on_end = on_end,
                                   .on_idle = on_idle};

    memset(&here, 0, sizeof here);
    here.may_write = true;
    (void)ct_copy(here.folder, sizeof here.folder, "/tmp/ctrun-hold-XXXXXX");
    assert_non_null(mkdtemp(here.folder));
    assert_int_equal(loop_create(&here.loop), 0);
    options.loop = here.loop;
    assert_int_equal(hold_create(&here.hold, &options), 0);
    return 0;
}

static int teardown(void **state)
{
    char path[80];

    hold_destroy(here.hold);
    while (atomic_load(&running) > 0)
        sched_yield();
    loop_stop(here.loop);
    loop_run(here.loop); /* the loop closes what was closed */
    assert_int_equal(loop_destroy(here.loop), 0);
    (void)ct_format(path, sizeof path, "%s/c", here.folder);
    (void)unlink(path);
    assert_int_equal(rmdir(here.folder), 0); /* no temporary file is left */
    return 0;
}

static void join(struct peer *peer, int rank)
{
    *peer = (struct peer){.client = hold_join(here.hold, peer, rank)};
    assert_non_null(peer->client);
}

static int say(struct peer *peer, enum ct_hold_verb verb, uint64_t bytes, uint32_t crc,
               int fd)
{
    struct ct_worker_hold request = {
        .verb = (uint8_t)verb, .bytes = bytes, .crc = crc, .inode = 7};

    (void)ct_copy(request.name, sizeof request.name, "c");
    (void)ct_copy(request.path, sizeof request.path, "somewhere/c");
    return hold_on_request(peer->client, &request, fd);
}

static int begin(struct peer *peer, uint64_t bytes)
{
    return say(peer, CT_HOLD_BEGIN, bytes, 0,
               open(here.folder, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

static int make_memory(const char *text)
{
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static int commit(struct peer *peer, const char *text)
{
    return say(peer, CT_HOLD_COMMIT, strlen(text), ct_crc32c(0, text, strlen(text)),
               make_memory(text));
}

static void read_file(char text[32])
{
    char path[80];
    ssize_t n;
    int fd;

    (void)ct_format(path, sizeof path, "%s/c", here.folder);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    n = read(fd, text, 31);
    assert_true(n >= 0);
    text[n] = '\0';
    close(fd);
}

TEST_AROUND(what_is_committed_is_written_though_its_worker_is_gone, setup, teardown)
{
    struct peer peer, other;
    char text[32];

    join(&peer, 0);
    assert_int_equal(begin(&peer, 50), 0);
    assert_int_equal(peer.code, 0);
    assert_false(hold_is_busy(here.hold));
    assert_int_equal(commit(&peer, "first"), 0);
    assert_int_equal(peer.answers, 2);
    assert_true(hold_is_busy(here.hold));
    hold_leave(peer.client);
    loop_run(here.loop);
    read_file(text);
    assert_string_equal(text, "first");
    assert_int_equal(here.written, 1);
    assert_int_equal(here.left, 1);
    assert_int_equal(here.idle, 1);

    join(&other, 5);
    assert_int_equal(say(&other, CT_HOLD_FIND, 0, 0, -1), 0);
    assert_int_equal(other.code, 0);
    assert_int_equal(other.bytes, 5);
    assert_true(other.has_descriptor);
}

TEST_AROUND(what_is_not_committed_is_dropped_with_its_worker, setup, teardown)
{
    struct peer peer, other;

    join(&peer, 0);
    join(&other, 1);
    assert_int_equal(begin(&peer, 100), 0);
    assert_int_equal(begin(&other, 1), 0);
    assert_int_equal(other.code, CTRUN_E_RESOURCES);
    hold_leave(peer.client);
    assert_int_equal(begin(&other, 100), 0);
    assert_int_equal(other.code, 0);
    assert_int_equal(say(&other, CT_HOLD_RESERVE, 1, 0, -1), 0);
    assert_int_equal(other.code, CTRUN_E_RESOURCES);
    assert_int_equal(say(&other, CT_HOLD_RESERVE, UINT64_MAX, 0, -1), 0);
    assert_int_equal(other.code, CTRUN_E_RESOURCES);
    assert_int_equal(say(&other, CT_HOLD_DROP, 0, 0, -1), 0);
    assert_int_equal(begin(&other, 100), 0);
    assert_int_equal(other.code, 0);
    assert_int_equal(here.written + here.lost + here.idle, 0);
}

TEST_AROUND(bytes_that_differ_from_their_sum_are_never_named, setup, teardown)
{
    struct peer peer;
    char text[32];

    join(&peer, 0);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(commit(&peer, "good"), 0);
    loop_run(here.loop);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(say(&peer, CT_HOLD_COMMIT, 4, 1, make_memory("evil")), 0);
    loop_run(here.loop);
    assert_int_equal(here.lost, 1);
    assert_non_null(strstr(here.why, "changed after the commit"));
    read_file(text);
    assert_string_equal(text, "good");
    assert_int_equal(say(&peer, CT_HOLD_WAIT, 0, 0, -1), 0);
    assert_int_equal(peer.code, -EBADMSG);
    assert_int_equal(say(&peer, CT_HOLD_FIND, 0, 0, -1), 0);
    assert_int_equal(peer.code, -ENOENT);
}

TEST_AROUND(a_third_one_waits_for_the_first, setup, teardown)
{
    struct peer peer;
    char text[32];

    join(&peer, 0);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(commit(&peer, "one"), 0);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(commit(&peer, "two"), 0);
    assert_int_equal(peer.answers, 4);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(peer.answers, 4); /* no answer yet: the loop has not run */
    assert_int_equal(begin(&peer, 10), CTRUN_E_PROTOCOL); /* it waits for an answer */
    loop_run(here.loop);
    assert_int_equal(peer.answers, 5);
    assert_int_equal(peer.code, 0);
    read_file(text);
    assert_string_equal(text, "two");
    assert_int_equal(here.written, 2);
}

TEST_AROUND(a_node_that_was_cut_off_names_nothing, setup, teardown)
{
    struct peer peer;

    join(&peer, 0);
    assert_int_equal(begin(&peer, 10), 0);
    here.may_write = false;
    assert_int_equal(commit(&peer, "late"), 0);
    loop_run(here.loop);
    assert_int_equal(here.lost, 1);
    assert_non_null(strstr(here.why, "cut off"));
}

static void lose_one(struct peer *peer, uint64_t bytes)
{
    here.may_write = false;
    assert_int_equal(begin(peer, bytes), 0);
    assert_int_equal(peer->code, 0);
    assert_int_equal(commit(peer, "late"), 0);
    while (hold_is_busy(here.hold))
        loop_run(here.loop);
    here.may_write = true;
}

/* The run may not end as a success then. */
TEST_AROUND(a_loss_is_found_until_its_rank_knows_or_saves_again, setup, teardown)
{
    struct ctrun_error err;
    struct peer peer, other;

    join(&peer, 3);
    join(&other, 4);
    assert_int_equal(hold_find_lost(here.hold, 3, &err), 0);
    lose_one(&peer, 10);
    assert_true(hold_find_lost(here.hold, 3, &err) < 0);
    assert_non_null(strstr(err.text,
                           "rank 3's last checkpoint, somewhere/c, is not on the "
                           "disk: "));
    assert_int_equal(hold_find_lost(here.hold, 4, &err), 0);
    hold_forget_lost(here.hold);
    assert_int_equal(hold_find_lost(here.hold, 3, &err), 0);
    lose_one(&peer, 10);
    assert_int_equal(say(&peer, CT_HOLD_WAIT, 0, 0, -1), 0);
    assert_true(peer.code < 0);
    assert_int_equal(hold_find_lost(here.hold, 3, &err), 0);
    lose_one(&peer, 10);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(commit(&peer, "in time"), 0);
    while (hold_is_busy(here.hold))
        loop_run(here.loop);
    assert_int_equal(hold_find_lost(here.hold, 3, &err), 0);
    lose_one(&peer, 10);
    hold_leave(peer.client);
    assert_int_equal(begin(&other, 100), 0); /* all memory */
    assert_int_equal(other.code, 0);
    assert_true(hold_find_lost(here.hold, 3, &err) < 0);
    hold_leave(other.client);
}

TEST_AROUND(what_is_cancelled_is_lost_at_once, setup, teardown)
{
    struct peer peer;

    join(&peer, 0);
    assert_int_equal(begin(&peer, 10), 0);
    here.may_write = false; /* else it may be on the disk before the cancel */
    assert_int_equal(commit(&peer, "late"), 0);
    hold_cancel(here.hold, "interrupted");
    assert_int_equal(here.lost, 1);
    assert_int_equal(hold_find_lost(here.hold, 0, NULL), 0);
    assert_string_equal(here.why, "interrupted");
    assert_int_equal(here.idle, 1);
    assert_false(hold_is_busy(here.hold));
}

/* Its thread hung in the disk, and goes on while the next bytes of the file wait for their name. */
TEST_AROUND(who_was_given_up_leaves_the_next_one_its_file, setup, teardown)
{
    struct peer peer;
    char text[32];

    here.holds = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(sem_init(i < 2 ? &here.may_go[i] : &here.came, 0, 0), 0);
    join(&peer, 0);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(commit(&peer, "old"), 0);
    wait_for(&here.came);
    hold_cancel(here.hold, "too late");
    loop_run(here.loop); /* returns at once: on_idle() was called */
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(commit(&peer, "new"), 0);
    wait_for(&here.came);
    sem_post(&here.may_go[0]);
    while (syscall(SYS_tgkill, getpid(), here.first, 0) == 0)
        sched_yield();
    sem_post(&here.may_go[1]);
    loop_run(here.loop);
    assert_int_equal(here.lost, 1);
    assert_int_equal(here.written, 1);
    read_file(text);
    assert_string_equal(text, "new");
}

TEST_AROUND(lies_end_the_connection, setup, teardown)
{
    struct peer peer;
    struct ct_worker_hold request = {.verb = CT_HOLD_BEGIN};

    join(&peer, 0);
    assert_int_equal(commit(&peer, "x"), CTRUN_E_PROTOCOL);
    hold_leave(peer.client);
    join(&peer, 0);
    assert_int_equal(say(&peer, CT_HOLD_BEGIN, 1, 0, -1), CTRUN_E_PROTOCOL);
    hold_leave(peer.client);
    join(&peer, 0);
    (void)ct_copy(request.name, sizeof request.name, "../c");
    assert_int_equal(hold_on_request(peer.client, &request, make_memory("")),
                     CTRUN_E_PROTOCOL);
    hold_leave(peer.client);
    join(&peer, 0);
    assert_int_equal(begin(&peer, 2), 0);
    /* Longer than reserved. */
    assert_int_equal(commit(&peer, "more"), CTRUN_E_PROTOCOL);
    hold_leave(peer.client);
    join(&peer, 0);
    assert_int_equal(begin(&peer, 9), 0);
    assert_int_equal(say(&peer, CT_HOLD_COMMIT, 9, 0, make_memory("less")),
                     CTRUN_E_PROTOCOL);
    hold_leave(peer.client);
    join(&peer, 0);
    assert_int_equal(begin(&peer, 9), 0);
    assert_int_equal(
        say(&peer, CT_HOLD_COMMIT, 0, 0, open("/dev/null", O_RDWR | O_CLOEXEC)),
        CTRUN_E_PROTOCOL);
    assert_int_equal(here.written + here.lost, 0);
}

TEST_AROUND(how_much_there_is_room_for_is_asked_once_and_not_before_it_matters, setup,
            teardown)
{
    struct peer peer;

    join(&peer, 0);
    assert_int_equal(here.asked, 0);
    assert_int_equal(begin(&peer, 10), 0);
    assert_int_equal(say(&peer, CT_HOLD_DROP, 0, 0, -1), 0);
    assert_int_equal(begin(&peer, 101), 0);
    assert_int_equal(peer.code, CTRUN_E_RESOURCES);
    assert_int_equal(here.asked, 1);
    hold_leave(peer.client);
}

TEST_AROUND(who_has_gone_makes_room_for_others, setup, teardown)
{
    struct peer peer, other;

    join(&peer, 0);
    join(&other, 1);
    assert_int_equal(begin(&peer, 5), 0);
    assert_int_equal(commit(&peer, "12345"), 0);
    loop_run(here.loop);
    assert_int_equal(begin(&other, 96), 0);
    assert_int_equal(other.code, CTRUN_E_RESOURCES);
    hold_leave(peer.client);
    assert_int_equal(begin(&other, 96), 0);
    assert_int_equal(other.code, 0);
    assert_int_equal(say(&other, CT_HOLD_FIND, 0, 0, -1), 0);
    assert_int_equal(other.code, -ENOENT);
}
