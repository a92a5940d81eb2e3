/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that can be read only in part: a recorder that does not answer, or not to the end, a file system that hangs.
 * Time stands still, but for polls in which nothing comes although all answers are on their way. */
#include "agent/recorder/worker_look.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/loop/limits.h"
#include "tests/lib/test.h"
#include "tests/lib/threads.h"
#include "worker_sdk/base/alloc.h"

enum {
    SILENT,
    GOOD,
    WORKERS,
    QUESTIONS = 2 /* one of each recorder */
};

/* ---- Time ---------------------------------------------------------------------------------- */

static atomic_ullong now_ms;
static atomic_bool is_answered;  /* nothing more comes */
static atomic_int interruptions; /* of the next polls */

int __real_poll(struct pollfd *list, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *list, nfds_t count, int timeout_ms);
uint64_t __wrap_ct_now_ms(void);
int __wrap_ct_left_ms(uint64_t deadline_ms);
void __real_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms);
void __wrap_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms);

int __wrap_poll(struct pollfd *list, nfds_t count, int timeout_ms)
{
    bool is_last;
    int rc;

    if (atomic_load(&interruptions) > 0) {
        atomic_fetch_sub(&interruptions, 1);
        errno = EINTR;
        return -1;
    }
    do {
        is_last = atomic_load(&is_answered);
        rc = __real_poll(list, count, is_last ? 0 : 10);
    } while (rc == 0 && !is_last);
    if (rc == 0)
        atomic_fetch_add(&now_ms, (unsigned)timeout_ms);
    return rc;
}

uint64_t __wrap_ct_now_ms(void)
{
    return atomic_load(&now_ms);
}

int __wrap_ct_left_ms(uint64_t deadline_ms)
{
    const uint64_t now = atomic_load(&now_ms);

    return deadline_ms > now ? (int)(deadline_ms - now) : 0;
}

/* The loop waits for the thread. */
void __wrap_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms)
{
    if (delay_ms != WORKER_LOOK_ALL_MS)
        __real_loop_timer_set(timer, delay_ms);
}

/* ---- Recorders ----------------------------------------------------------------------------- */

static int listen_for(const struct recorder_folder *in, pid_t pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char path[PATH_MAX];

    recorder_folder_socket(in, path, pid);
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, QUESTIONS), 0);
    return fd;
}

struct server {
    int good; /* listeners */
    int half; /* begins its answers, and writes the good ones only then; -1: there is none */
};

static void *answer(void *context)
{
    const struct server *server = context;
    static const char text[] =
        "HTTP/1.1 200 OK\r\n\r\n"
        "{\"entries\":[{\"process_group\":[\"0\",\"default_pg\"],"
        "\"collective_seq_id\":1,\"time_created_ns\":1000,"
        "\"profiling_name\":\"gloo:all_reduce\",\"state\":\"completed\"}]}";
    char question[512];
    int begun[QUESTIONS];

    for (int i = 0; i < QUESTIONS && server->half >= 0; i++) {
        begun[i] = accept(server->half, NULL, NULL);
        (void)send(begun[i], text, 1, MSG_NOSIGNAL);
    }
    for (int i = 0; i < QUESTIONS; i++) {
        const int fd = accept(server->good, NULL, NULL);

        if (fd < 0)
            break;
        (void)!read(fd, question, sizeof question);
        (void)send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
        close(fd);
    }
    atomic_store(&is_answered, true);
    while (accept(server->good, NULL, NULL) >= 0)
        ;
    for (int i = 0; i < QUESTIONS && server->half >= 0; i++)
        close(begun[i]);
    return NULL;
}

struct seen {
    struct loop *loop;
    bool has_recorder[WORKERS], is_seen[WORKERS];
    int call_count[WORKERS];
};

static void note(void *context, struct worker_seen *list, int count)
{
    struct seen *seen = context;

    for (int i = 0; i < count; i++) {
        seen->has_recorder[i] = list[i].has_recorder;
        seen->is_seen[i] = list[i].is_seen;
        seen->call_count[i] = list[i].call_count;
    }
    loop_stop(seen->loop);
}

/* ---- What they use ------------------------------------------------------------------------- */

static char path[] = "/tmp/ctrun-look-XXXXXX";
static struct recorder_folder *folder;

static int begin(void **state)
{
    struct ctrun_error err;

    memcpy(path + sizeof path - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    return mkdtemp(path) && setenv(CTL_DIR_ENV, path, 1) == 0
               ? recorder_folder_open(&folder, RECORDER_SERVE, &err)
               : -1;
}

static int end(void **state)
{
    recorder_folder_close(folder);
    return rmdir(path);
}

/* Looks at the workers of the list until `server` has answered; takes the list. */
static struct seen look_at(struct worker_seen *list, int count, struct server server)
{
    struct seen seen = {0};
    pthread_t thread;

    atomic_store(&is_answered, false);
    assert_int_equal(pthread_create(&thread, NULL, answer, &server), 0);
    assert_int_equal(loop_create(&seen.loop), 0);
    assert_non_null(worker_look_start(seen.loop, folder, list, count, note, &seen));
    loop_run(seen.loop);
    assert_int_equal(shutdown(server.good, SHUT_RDWR), 0);
    pthread_join(thread, NULL);
    assert_int_equal(loop_destroy(seen.loop), 0);
    return seen;
}

/* One that never answers, or only begins to, and a good one. */
static void look_at_both(bool begins)
{
    struct worker_seen *list = ct_zalloc_array(WORKERS, sizeof *list);
    const int silent = listen_for(folder, getppid());
    const int good = listen_for(folder, getpid());
    struct seen seen;

    assert_non_null(list);
    list[SILENT] = (struct worker_seen){.pid = getppid(), .wants_calls = true};
    list[GOOD] = (struct worker_seen){.pid = getpid(), .wants_calls = true};
    seen = look_at(list, WORKERS, (struct server){good, begins ? silent : -1});
    close(silent);
    close(good);
    assert_false(seen.has_recorder[SILENT]);
    assert_true(seen.has_recorder[GOOD]);
    assert_int_equal(seen.call_count[GOOD], QUESTIONS);
}

TEST_AROUND(a_silent_recorder_hides_no_other, begin, end)
{
    look_at_both(false);
}

TEST_AROUND(a_recorder_that_stops_within_its_answer_hides_no_other, begin, end)
{
    look_at_both(true);
}

TEST_AROUND(a_signal_ends_no_wait_for_recorders, begin, end)
{
    atomic_store(&interruptions, 1);
    look_at_both(false);
}

/* ---- A file system that hangs -------------------------------------------------------------- */

static sem_t is_hung, answers;
static atomic_bool is_well; /* files of the parent can be read */

void __wrap_live_stack_find_place(struct live_place *out, pid_t pid,
                                  struct python_room *room);

void __wrap_live_stack_find_place(struct live_place *out, pid_t pid,
                                  struct python_room *room)
{
    if (pid == getppid() && atomic_load(&is_well))
        return;
    assert_int_equal(sem_post(&is_hung), 0);
    assert_int_equal(sem_wait(&answers), 0);
}

static struct worker_seen *list_one(void)
{
    struct worker_seen *list = ct_zalloc_array(1, sizeof *list);

    assert_non_null(list);
    list[0].pid = getpid();
    return list;
}

TEST_AROUND(recorders_are_read_while_the_place_of_a_worker_cannot_be, begin, end)
{
    const int threads = test_count_threads();
    struct worker_look *look;
    struct loop *loop;
    struct seen seen;
    int good;

    assert_int_equal(sem_init(&is_hung, 0, 0), 0);
    assert_int_equal(sem_init(&answers, 0, 0), 0);
    assert_int_equal(loop_create(&loop), 0);
    look = worker_look_start(loop, folder, list_one(), 1, note, NULL);
    assert_non_null(look);
    assert_int_equal(sem_wait(&is_hung), 0);
    worker_look_cancel(look);
    assert_int_equal(loop_destroy(loop), 0);
    good = listen_for(folder, getpid());
    seen = look_at(list_one(), 1, (struct server){good, -1});
    close(good);
    assert_true(seen.has_recorder[0]);
    assert_int_equal(sem_post(&answers), 0);
    while (test_count_threads() > threads)
        (void)sched_yield();
    assert_int_equal(sem_trywait(&is_hung), -1); /* no second thread hangs */
}

/* None of them has a recorder. */
TEST_AROUND(a_worker_whose_files_hang_hides_no_other, begin, end)
{
    const int threads = test_count_threads();
    struct worker_seen *list = ct_zalloc_array(WORKERS, sizeof *list);
    struct worker_look *look;
    struct seen seen = {0};

    assert_non_null(list);
    assert_int_equal(sem_init(&is_hung, 0, 0), 0);
    assert_int_equal(sem_init(&answers, 0, 0), 0);
    assert_int_equal(loop_create(&seen.loop), 0);
    look = worker_look_start(seen.loop, folder, list_one(), 1, note, &seen);
    assert_non_null(look);
    assert_int_equal(sem_wait(&is_hung), 0);
    worker_look_cancel(look);
    atomic_store(&is_well, true);
    list[0].pid = getpid();
    list[1].pid = getppid();
    assert_non_null(worker_look_start(seen.loop, folder, list, WORKERS, note, &seen));
    loop_run(seen.loop);
    assert_int_equal(loop_destroy(seen.loop), 0);
    atomic_store(&is_well, false);
    assert_false(seen.is_seen[0]);
    assert_true(seen.is_seen[1]);
    assert_int_equal(sem_post(&answers), 0);
    while (test_count_threads() > threads)
        (void)sched_yield();
    assert_int_equal(sem_trywait(&is_hung), -1);
}
