/* SPDX-License-Identifier: Apache-2.0 */
/* A commit whose reply does not come. The test is the agent. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/pass_fd.h"
#include "worker_sdk/session/session_private.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/message.h"

struct agent {
    int listener;
    _Atomic int memory; /* of the commit */
    char name[64];
};

static void reply(int fd)
{
    const struct ct_worker_hold_reply good = {.code = 0};
    const struct ct_message message = {CT_MESSAGE_WORKER_HOLD_REPLY,
                                       .worker_hold_reply = &good};
    struct ct_buf out;

    ct_buf_init(&out, 8192);
    if (ct_message_encode(&out, &message) == 0)
        (void)send(fd, ct_buf_data(&out), ct_buf_length(&out), MSG_NOSIGNAL);
    ct_buf_deinit(&out);
}

/* Replies to every request, up to a commit: takes its memory and closes the connection. */
static void serve(struct agent *agent, int fd)
{
    struct ct_worker_hold request;
    struct ct_message message;
    struct ct_frame frame;
    uint8_t bytes[4096];
    bool is_over = false;
    struct ct_buf in;
    int passed = -1, used;
    ssize_t n;

    ct_buf_init(&in, 65536);
    while (!is_over && poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1) > 0 &&
           (n = ct_receive_with_fd(fd, bytes, sizeof bytes, &passed)) > 0) {
        (void)ct_buf_append(&in, bytes, (size_t)n);
        while ((used = ct_frame_decode(ct_buf_data(&in), ct_buf_length(&in), &frame)) >
               0) {
            if (frame.kind == CT_MESSAGE_WORKER_HOLD &&
                ct_message_decode(&frame, &message, &request, sizeof request) == 0) {
                is_over = request.verb == CT_HOLD_COMMIT;
                if (!is_over)
                    reply(fd);
            }
            ct_buf_consume(&in, (size_t)used);
        }
    }
    if (is_over)
        agent->memory = passed;
    else if (passed >= 0)
        close(passed);
    ct_buf_deinit(&in);
    close(fd);
}

static void *serve_all(void *context)
{
    struct agent *agent = context;
    int fd;

    while ((fd = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        serve(agent, fd);
    return NULL;
}

static void begin(struct agent *agent)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t length;

    agent->memory = -1;
    (void)ct_format(agent->name, sizeof agent->name, "@ctrun-hold-test-%d", getpid());
    length = strlen(agent->name);
    memcpy(addr.sun_path, agent->name, length);
    addr.sun_path[0] = '\0';
    agent->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(agent->listener, (struct sockaddr *)&addr,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)),
                     0);
    assert_int_equal(listen(agent->listener, 8), 0);
    assert_int_equal(setenv(CT_ENV_AGENT_SOCKET, agent->name, 1), 0);
}

/* The agent may have the memory and write it to the disk. */
TEST(memory_of_a_commit_without_a_reply_is_not_used_again)
{
    struct ctrun_session session = {.rank = 0};
    struct ctrun_error err = {.text = ""};
    struct ctrun_hold *hold;
    struct agent agent;
    pthread_t thread;
    char bytes[6] = "";

    begin(&agent);
    assert_int_equal(pthread_create(&thread, NULL, serve_all, &agent), 0);
    assert_int_equal(ctrun_hold_open(&hold, &session, "/tmp/one", NULL, &err), 0);
    assert_int_equal(ctrun_hold_write(hold, "first", 5, &err), 0);
    assert_true(ctrun_hold_commit(hold, &err) < 0);
    ctrun_hold_close(hold);
    assert_int_equal(ctrun_hold_open(&hold, &session, "/tmp/one", NULL, &err), 0);
    assert_int_equal(ctrun_hold_write(hold, "later", 5, &err), 0);
    assert_true(agent.memory >= 0); /* the first connection has ended */
    assert_int_equal(pread(agent.memory, bytes, 5, 0), 5);
    assert_string_equal(bytes, "first");
    close(agent.memory);
    assert_true(ctrun_hold_commit(hold, &err) < 0);
    ctrun_hold_close(hold);
    assert_int_equal(shutdown(agent.listener, SHUT_RDWR), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(agent.memory);
    close(agent.listener);
}

/* The agent has one file in the making for each rank: at another one it would drop the first. */
TEST(a_second_one_is_refused_while_the_first_is_made)
{
    struct ctrun_session session = {.rank = 0};
    struct ctrun_error err = {.text = ""};
    struct ctrun_hold *first, *second;
    struct agent agent;
    pthread_t thread;

    begin(&agent);
    assert_int_equal(pthread_create(&thread, NULL, serve_all, &agent), 0);
    assert_int_equal(ctrun_hold_open(&first, &session, "/tmp/one", NULL, &err), 0);
    assert_int_equal(ctrun_hold_open(&second, &session, "/tmp/two", NULL, &err),
                     CTRUN_E_USAGE);
    assert_null(second);
    assert_non_null(strstr(err.text, "/tmp/two: this process is making /tmp/one"));
    assert_int_equal(ctrun_hold_write(first, "first", 5, &err), 0);
    ctrun_hold_close(first);
    assert_int_equal(ctrun_hold_open(&second, &session, "/tmp/two", NULL, &err), 0);
    assert_true(ctrun_hold_commit(second, &err) < 0); /* this agent hangs up */
    assert_int_equal(ctrun_hold_open(&first, &session, "/tmp/one", NULL, &err), 0);
    ctrun_hold_close(second);
    close(agent.memory); /* the connection before has ended */
    assert_true(ctrun_hold_commit(first, &err) < 0);
    ctrun_hold_close(first);
    assert_int_equal(shutdown(agent.listener, SHUT_RDWR), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(agent.memory);
    close(agent.listener);
}

/* ---- Without an agent --------------------------------------------------------------------- */

/* Makes a file in a folder of its own. */
static struct ctrun_hold *hold_in(char *folder)
{
    static struct ctrun_session session = {.rank = 0};
    struct ctrun_hold *hold;
    struct ctrun_error err;

    unsetenv(CT_ENV_AGENT_SOCKET);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(ctrun_hold_open(&hold, &session, "last.ckpt", NULL, &err), 0);
    assert_int_equal(ctrun_hold_write(hold, "data", 4, &err), 0);
    return hold;
}

/* Commits it. */
static void check_error(struct ctrun_hold *hold, int rc, const char *step,
                        const char *why)
{
    struct ctrun_error err;
    char want[128];

    assert_int_equal(ctrun_hold_commit(hold, &err), rc);
    (void)ct_format(want, sizeof want,
                    "hold checkpoint last.ckpt: %s last.ckpt.tmp-%d: %s", step,
                    getpid(), why);
    assert_string_equal(err.text, want);
    ctrun_hold_close(hold);
}

TEST(a_file_that_cannot_be_written_is_told_by_its_own_name)
{
    char folder[] = "/tmp/ctrun_hold_XXXXXX";
    struct ctrun_hold *hold = hold_in(folder);

    assert_int_equal(mkdir("last.ckpt", 0700), 0);
    check_error(hold, -EISDIR, "rename", "Is a directory");
    assert_int_equal(rmdir("last.ckpt"), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0);
}

TEST(a_length_that_no_memory_has_is_refused)
{
    char folder[] = "/tmp/ctrun-hold-long-XXXXXX";
    struct ctrun_hold *hold = hold_in(folder);
    struct ctrun_error err;

    assert_int_equal(ctrun_hold_write(hold, folder, SIZE_MAX, &err), -EINVAL);
    assert_non_null(strstr(err.text, "last.ckpt: 18446744073709551615 bytes are too"));
    assert_int_equal(ctrun_hold_commit(hold, &err), -EPIPE);
    ctrun_hold_close(hold);
    assert_int_equal(rmdir(folder), 0);
}

TEST(what_is_no_file_is_told_before_the_file_is_made)
{
    struct ctrun_session session = {.rank = 0};
    char folder[] = "/tmp/ctrun_hold_XXXXXX";
    struct ctrun_hold *hold;
    struct ctrun_error err;

    unsetenv(CT_ENV_AGENT_SOCKET);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ctrun_hold_open(&hold, &session, folder, NULL, &err), -EISDIR);
    assert_null(hold);
    assert_non_null(strstr(err.text, folder));
    assert_int_equal(ctrun_hold_open(&hold, &session, "/dev/null", NULL, &err),
                     -EINVAL);
    assert_null(hold);
    assert_int_equal(rmdir(folder), 0);
}

/* The number of the last descriptor that is memory of a checkpoint. */
static int find_memory(void)
{
    char path[40], target[64];
    int found = -1;

    for (int fd = 0; fd < 256; fd++) {
        ssize_t n;

        (void)ct_format(path, sizeof path, "/proc/self/fd/%d", fd);
        n = readlink(path, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        if (strncmp(target, "/memfd:ctrun-checkpoint", 23) == 0)
            found = fd;
    }
    return found;
}

TEST(bytes_that_were_changed_before_they_were_written_are_told)
{
    char folder[] = "/tmp/ctrun_hold_XXXXXX";
    struct ctrun_hold *hold = hold_in(folder);

    assert_int_equal(pwrite(find_memory(), "D", 1, 0), 1);
    check_error(hold, -EBADMSG, "write", "its bytes were changed meanwhile");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0); /* there is no file */
}
