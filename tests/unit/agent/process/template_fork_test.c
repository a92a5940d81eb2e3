/* SPDX-License-Identifier: Apache-2.0 */
/* A fake template process: correct answers give workers, all other answers none. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/template_fork.h"
#include "tests/lib/test.h"

enum {
    LIMIT_MS = 60000, /* for templates that answer */
    SHORT_MS = 1000,
    FDS = 5,
    MEMORY = 0,
    GATE = 1,
    RAN = 7,    /* exit code of a worker that ran */
    CLOSED = 9, /* exit code: the barrier was closed */
    WRONG = 11,
};

typedef void story_fn(int socket);

static char name[] = "python3", nothing[] = "", two[] = "a b";
static char *const words[] = {name, nothing, two, NULL};
static char rank[] = "RANK=0", empty[] = "EMPTY=";
static char *const pairs[] = {rank, empty, NULL};

/* ---- The template's side ---------------------------------------------------------------- */

/* Receives one worker's request; false at the end of the batch. */
static bool receive(int socket, int *number, int fds[FDS])
{
    union {
        char bytes[CMSG_SPACE(FDS * sizeof(int))];
        struct cmsghdr header;
    } control;
    struct iovec part = {number, sizeof *number};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};

    if (recvmsg(socket, &message, 0) != (ssize_t)sizeof *number ||
        !CMSG_FIRSTHDR(&message))
        return false;
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), FDS * sizeof(int));
    return true;
}

static void say(int socket, char kind, int first, int second)
{
    const int32_t numbers[] = {first, second};
    char text[1 + sizeof numbers] = {kind};

    memcpy(text + 1, numbers, sizeof numbers);
    (void)!send(socket, text, kind == 'D' ? 5 : sizeof text, MSG_NOSIGNAL);
}

/* A worker that has reported that it exists: checks its memory and what comes through the barrier. */
static _Noreturn void run_worker(int number, const int fds[FDS])
{
    static const char expected[] = "\3\0\0\0\2\0\0\0python3\0\0a b\0RANK=0\0EMPTY=";
    char text[2 * sizeof expected];
    cpu_set_t cpus;

    if (read(fds[GATE], text, 1) != 1)
        _exit(CLOSED);
    if (pread(fds[MEMORY], text, sizeof text, 0) != (ssize_t)sizeof expected ||
        memcmp(text, expected, sizeof expected) != 0 || write(fds[3], "out", 3) != 3)
        _exit(WRONG);
    (void)sched_getaffinity(0, sizeof cpus, &cpus);
    _exit(number == 1 && CPU_COUNT(&cpus) != 1 ? WRONG : RAN);
}

static _Noreturn void be_worker(int socket, int number, const int fds[FDS])
{
    say(socket, 'W', number, 0);
    close(socket);
    run_worker(number, fds);
}

static void start_batch(int socket)
{
    int number, fds[FDS];

    while (receive(socket, &number, fds))
        if (fork() == 0)
            be_worker(socket, number, fds);
}

static void is_right(int socket)
{
    const pid_t starter = fork();

    if (starter == 0) {
        start_batch(socket);
        _exit(0);
    }
    (void)waitpid(starter, NULL, 0);
    say(socket, 'D', 0, 0);
}

static void keeps_its_children(int socket)
{
    start_batch(socket);
    say(socket, 'D', 0, 0);
    (void)pause();
}

/* Reads the batch, so that no message is lost when the socket closes. */
static void ignore_batch(int socket)
{
    int number, fds[FDS];

    while (receive(socket, &number, fds))
        for (int i = 0; i < FDS; i++)
            close(fds[i]);
}

static void is_a_worker_itself(int socket)
{
    ignore_batch(socket);
    say(socket, 'W', 0, 0);
    say(socket, 'W', 1, 0);
    say(socket, 'D', 0, 0);
}

static void says_a_number_beyond(int socket)
{
    ignore_batch(socket);
    say(socket, 'W', 2, 0);
}

static void says_a_number_below(int socket)
{
    ignore_batch(socket);
    say(socket, 'W', -1, 0);
}

static void says_a_number_twice(int socket)
{
    ignore_batch(socket);
    say(socket, 'W', 0, 0);
    say(socket, 'W', 0, 0);
}

static void cannot_fork(int socket)
{
    ignore_batch(socket);
    say(socket, 'W', 0, -EAGAIN);
}

static void has_lost_its_starter(int socket)
{
    ignore_batch(socket);
    say(socket, 'D', SIGKILL, 0);
}

static void says_what_is_nothing(int socket)
{
    ignore_batch(socket);
    (void)!send(socket, "x", 1, 0);
}

static void says_too_much(int socket)
{
    const char text[64] = "W";

    ignore_batch(socket);
    (void)!send(socket, text, sizeof text, 0);
}

static void says_nothing(int socket)
{
    ignore_batch(socket);
    (void)pause();
}

/* The worker reports that it exists before it has its request: the test waits for the report, and
 * only then the agent's limit begins. */
static _Noreturn void report_early(int socket)
{
    int number, fds[FDS];

    say(socket, 'W', 0, 0);
    if (!receive(socket, &number, fds))
        _exit(CLOSED);
    close(socket);
    run_worker(number, fds);
}

static void makes_one_alone(int socket)
{
    const pid_t starter = fork();

    if (starter == 0) {
        if (fork() == 0)
            report_early(socket);
        _exit(0);
    }
    (void)pause();
}

static void ends(int socket)
{
    ignore_batch(socket);
}

/* ---- The agent's side ------------------------------------------------------------------- */

struct scene {
    pid_t template;
    int socket;
    int out[2];
    struct bind bind;
    struct template_worker workers[2];
    struct ctrun_error err;
};

static void begin(struct scene *scene, story_fn *story)
{
    static const int on = 1;
    int fds[2];

    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    assert_int_equal(setsockopt(fds[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    assert_int_equal(pipe(scene->out), 0);
    if ((scene->template = fork()) == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        story(fds[1]);
        _exit(0);
    }
    close(fds[1]);
    scene->socket = fds[0];
    scene->bind.has_cpus = true;
    cpuset_add(&scene->bind.cpus, sched_getcpu());
    for (int i = 0; i < 2; i++)
        scene->workers[i] = (struct template_worker){
            .argv = words, .env = pairs, .fds = {0, scene->out[1], 2}};
    scene->workers[1].bind = &scene->bind;
}

static int play(struct scene *scene, story_fn *story, uint64_t limit_ms)
{
    begin(scene, story);
    return template_fork(scene->socket, scene->workers, 2, limit_ms, &scene->err);
}

static int wait_for(pid_t pid)
{
    int status = -1;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Ends the template. No worker of it ran. */
static void end(struct scene *scene)
{
    int status;

    close(scene->socket);
    (void)kill(scene->template, SIGKILL);
    while (wait(&status) > 0)
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == RAN);
    assert_int_equal(errno, ECHILD);
    close(scene->out[0]);
    close(scene->out[1]);
}

TEST(a_batch_becomes_our_children_and_the_second_has_one_cpu)
{
    struct scene scene = {0};
    char text[6];

    assert_int_equal(play(&scene, is_right, LIMIT_MS), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(wait_for(scene.workers[i].pid), RAN);
    assert_int_equal(read(scene.out[0], text, sizeof text), 6);
    assert_memory_equal(text, "outout", 6);
    end(&scene);
}

static void nobody_runs(story_fn *story, int rc, const char *why)
{
    struct scene scene = {0};

    assert_int_equal(play(&scene, story, rc == -ETIMEDOUT ? SHORT_MS : LIMIT_MS), rc);
    assert_non_null(strstr(scene.err.text, why));
    end(&scene);
}

TEST(workers_of_somebody_else_do_not_run)
{
    nobody_runs(keeps_its_children, -ECHILD, "is not a child of this agent");
    nobody_runs(is_a_worker_itself, -ECHILD, "is not a child of this agent");
}

TEST(what_is_no_answer_makes_no_worker)
{
    nobody_runs(says_a_number_beyond, -EPROTO, "a malformed answer");
    nobody_runs(says_a_number_below, -EPROTO, "a malformed answer");
    nobody_runs(says_a_number_twice, -EPROTO, "a malformed answer");
    nobody_runs(has_lost_its_starter, -EPROTO, "a malformed answer");
    nobody_runs(says_what_is_nothing, -EPROTO, "a malformed answer");
    nobody_runs(says_too_much, -EPROTO, "a malformed answer");
}

TEST(a_fork_that_fails_is_told)
{
    nobody_runs(cannot_fork, -EAGAIN, "Resource temporarily unavailable");
}

TEST(one_that_is_gone_or_silent_is_given_up)
{
    nobody_runs(ends, -EPIPE, "has closed its socket");
    nobody_runs(says_nothing, -ETIMEDOUT,
                "does not answer: after 1.0 s it has made 0 of 2 workers");
}

TEST(one_that_is_too_slow_is_given_up_with_what_it_has_made)
{
    struct scene scene = {0};
    struct pollfd report = {.events = POLLIN};

    begin(&scene, makes_one_alone);
    report.fd = scene.socket;
    assert_int_equal(poll(&report, 1, LIMIT_MS), 1);
    assert_int_equal(
        template_fork(scene.socket, scene.workers, 2, SHORT_MS, &scene.err),
        -ETIMEDOUT);
    assert_non_null(strstr(scene.err.text, "it has made 1 of 2 workers"));
    end(&scene);
}

TEST(many_workers_have_more_time_but_less_than_the_lease_is_left)
{
    assert_int_equal(template_fork_limit_ms(1, INT_MAX), 3050);
    assert_int_equal(template_fork_limit_ms(64, INT_MAX), 6200);
    assert_int_equal(template_fork_limit_ms(64, 4500), 3500);
    assert_int_equal(template_fork_limit_ms(64, 2000), 1000);
    assert_int_equal(template_fork_limit_ms(1, 600), 300);
    assert_int_equal(template_fork_limit_ms(1, 0), 0);
}
