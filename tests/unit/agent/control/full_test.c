/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's listening sockets while no descriptor is left: the connection keeps them readable. */
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/control/ctl_socket.h"
#include "agent/control/worker_socket.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    TURNS = 20, /* of the loop: enough to see that it turns for nothing */
    LINE_MAX_BYTES = 256
};

static int accepts; /* calls */
static int sets;    /* of the timer that was opened last */
static int full;    /* the error of accept4(); 0: none */
static int turns;   /* left */
static struct loop *loop;
static struct loop_timer *last_timer;
static loop_timer_fn *last_fn;
static void *last_context;
static char line[LINE_MAX_BYTES]; /* the first one of the log */

/* ---- The kernel and the time ------------------------------------------------------------------ */

int __real_accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *length, int flags)
{
    accepts++;
    if (full == 0)
        return __real_accept4(fd, addr, length, flags);
    errno = full;
    return -1;
}

struct loop_timer *__real_loop_timer_open(struct loop *on, loop_timer_fn *fn,
                                          void *context);
struct loop_timer *__wrap_loop_timer_open(struct loop *on, loop_timer_fn *fn,
                                          void *context);
struct loop_timer *__wrap_loop_timer_open(struct loop *on, loop_timer_fn *fn,
                                          void *context)
{
    last_fn = fn;
    last_context = context;
    return last_timer = __real_loop_timer_open(on, fn, context);
}

/* Only the test lets it fire. */
void __wrap_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms);
void __wrap_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms)
{
    sets += timer == last_timer;
}

/* ---- Tests ------------------------------------------------------------------------------------ */

static void keep_line(void *context, enum ctrun_log_level level, const char *text)
{
    if (!*line)
        (void)ct_copy(line, sizeof line, text); /* cut is fine */
}

static char folder[] = "/tmp/ctrun-full-XXXXXX";

static int begin(void **state)
{
    memcpy(folder + sizeof folder - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    last_fn = NULL;
    line[0] = '\0';
    ct_log_set_sink(keep_line, NULL, CTRUN_LOG_WARN);
    return mkdtemp(folder) && setenv(CTL_DIR_ENV, folder, 1) == 0 ? loop_create(&loop)
                                                                  : -1;
}

static int end(void **state)
{
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    loop_run(loop); /* until all is closed */
    return loop_destroy(loop) == 0 ? rmdir(folder) : -1;
}

static void on_turn(void *context, unsigned events)
{
    if (--turns == 0)
        loop_stop(loop);
}

/* Turns the loop some times; a descriptor that is always ready counts. */
static void turn(void)
{
    const uint64_t one = 1;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct loop_watch *watch;

    assert_int_equal(write(fd, &one, sizeof one), sizeof one);
    assert_non_null(watch = loop_watch_open(loop, fd, on_turn, NULL));
    loop_watch_for(watch, LOOP_READ);
    turns = TURNS;
    loop_run(loop);
    loop_watch_close(watch);
}

static int connect_to(const char *path)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    assert_true(ct_copy(address.sun_path, sizeof address.sun_path, path) >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

struct tries {
    int accepts[4], sets[4];
};

/* A connection waits, and no descriptor is left for it; the last time one is. */
static struct tries try_all(const char *path)
{
    const int errors[4] = {EMFILE, ENFILE, ENOMEM, 0};
    const int fd = connect_to(path);
    struct tries tries = {0};

    for (int i = 0; i < 4; i++) {
        accepts = sets = 0;
        full = errors[i];
        if (i > 0 && last_fn)
            last_fn(last_context);
        turn();
        tries.accepts[i] = accepts;
        tries.sets[i] = sets;
    }
    close(fd);
    return tries;
}

static void check(const struct tries *tries, const char *name)
{
    char text[LINE_MAX_BYTES];

    (void)snprintf(text, sizeof text,
                   "%s: cannot accept a connection, tries again: Too many open files; "
                   "raise ulimit -n",
                   name);
    assert_string_equal(line, text);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tries->accepts[i], 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tries->sets[i], 1);
}

TEST_AROUND(the_workers_socket_waits_without_turning_the_loop, begin, end)
{
    const struct worker_socket_options options = {.loop = loop, .run_id = "r"};
    struct worker_socket *worker_socket;
    struct ctrun_error err;
    struct tries tries;

    assert_int_equal(worker_socket_open(&worker_socket, &options, &err), 0);
    tries = try_all(worker_socket_name(worker_socket));
    worker_socket_close(worker_socket);
    check(&tries, "worker socket");
}

TEST_AROUND(the_control_socket_waits_without_turning_the_loop, begin, end)
{
    const struct ctl_socket_options options = {.loop = loop, .run_id = "r"};
    char name[CTL_DIR_NAME_MAX], path[256];
    struct ctl_socket *ctl_socket;
    struct ctrun_error err;
    struct tries tries;

    assert_int_equal(ctl_socket_open(&ctl_socket, &options, &err), 0);
    ctl_dir_own_name(name, "r", CTL_SOCKET_SUFFIX);
    assert_true(ct_format(path, sizeof path, "%s/%s", folder, name) >= 0);
    tries = try_all(path);
    ctl_socket_close(ctl_socket);
    check(&tries, "control socket");
}
