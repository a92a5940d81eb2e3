/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker does with memory that its agent has, or that another process reads. The agent is
 * threads of the test, one for each connection; every test has a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/net/pass_fd.h"
#include "worker_sdk/session/session_private.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/message.h"

enum {
    COMMITS_MAX = 8,
    CONNECTIONS_MAX = 8
};

static struct {
    pthread_mutex_t lock; /* of all below */
    int listener;
    pthread_t greeter, threads[CONNECTIONS_MAX];
    int connections[CONNECTIONS_MAX];
    int connection_count;
    struct ct_worker_hold commits[COMMITS_MAX];
    int memories[COMMITS_MAX]; /* of the commits */
    int commit_count;
    int drops;
    uint64_t room;      /* for the next file */
    bool answers_waits; /* what was committed is on the disk */
    int lost;           /* why a file is not: what a wait gets */
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER, .room = UINT64_MAX};

static struct ctrun_session session;
static char path[64];

static void send_reply(int fd, const struct ct_worker_hold_reply *reply, int passed)
{
    const struct ct_message message = {CT_MESSAGE_WORKER_HOLD_REPLY,
                                       .worker_hold_reply = reply};
    struct ct_buf out;

    ct_buf_init(&out, 8192);
    CHECK(ct_message_encode(&out, &message) == 0);
    CHECK(ct_send_with_fd(fd, ct_buf_data(&out), ct_buf_length(&out), passed) > 0);
    ct_buf_deinit(&out);
}

/* The last commit is on the disk, at `path`. */
static void reply_found(int fd)
{
    const int last = agent.commit_count - 1;
    struct ct_worker_hold_reply reply = {.bytes = agent.commits[last].bytes,
                                         .crc = agent.commits[last].crc};
    struct stat st;

    CHECK(stat(path, &st) == 0);
    reply.inode = st.st_ino;
    reply.mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 +
                     (uint64_t)st.st_mtim.tv_nsec;
    send_reply(fd, &reply, agent.memories[last]);
}

static bool asks_for_room(const struct ct_worker_hold *request)
{
    return request->verb == CT_HOLD_BEGIN || request->verb == CT_HOLD_RESERVE;
}

static void answer(int fd, const struct ct_worker_hold *request, int passed)
{
    struct ct_worker_hold_reply reply = {.code = 0};

    pthread_mutex_lock(&agent.lock);
    if (asks_for_room(request) && request->bytes > agent.room)
        reply.code = CTRUN_E_RESOURCES;
    if (request->verb == CT_HOLD_COMMIT) {
        agent.commits[agent.commit_count] = *request;
        agent.memories[agent.commit_count++] = passed;
    }
    agent.drops += request->verb == CT_HOLD_DROP;
    if (request->verb == CT_HOLD_WAIT)
        reply.code = agent.lost;
    if (request->verb == CT_HOLD_FIND)
        reply_found(fd);
    else if (request->verb != CT_HOLD_WAIT || agent.answers_waits)
        send_reply(fd, &reply, -1);
    pthread_mutex_unlock(&agent.lock);
}

static void *serve(void *context)
{
    const int fd = *(const int *)context;
    struct ct_worker_hold request;
    struct ct_message message;
    struct ct_frame frame;
    uint8_t bytes[4096];
    struct ct_buf in;
    int passed = -1, used;
    ssize_t n;

    ct_buf_init(&in, 65536);
    while (poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1) > 0 &&
           (n = ct_receive_with_fd(fd, bytes, sizeof bytes, &passed)) > 0) {
        CHECK(ct_buf_append(&in, bytes, (size_t)n) == 0);
        while ((used = ct_frame_decode(ct_buf_data(&in), ct_buf_length(&in), &frame)) >
               0) {
            if (frame.kind == CT_MESSAGE_WORKER_HOLD &&
                ct_message_decode(&frame, &message, &request, sizeof request) == 0) {
                answer(fd, &request, passed);
                passed = -1;
            }
            ct_buf_consume(&in, (size_t)used);
        }
    }
    ct_buf_deinit(&in);
    close(fd);
    return NULL;
}

static void *greet(void *context)
{
    int fd;

    while ((fd = accept4(agent.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        int *own = &agent.connections[agent.connection_count];

        *own = fd;
        CHECK(pthread_create(&agent.threads[agent.connection_count++], NULL, serve,
                             own) == 0);
    }
    return NULL;
}

static void begin_agent(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char name[64];
    int length = ct_format(name, sizeof name, "@ctrun-hold-agent-test-%d", getpid());
    int fd;

    memcpy(addr.sun_path, name, (size_t)length);
    addr.sun_path[0] = '\0';
    agent.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(agent.listener, (struct sockaddr *)&addr,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)) ==
          0);
    CHECK(listen(agent.listener, 8) == 0);
    CHECK(setenv(CT_ENV_AGENT_SOCKET, name, 1) == 0);
    CHECK(pthread_create(&agent.greeter, NULL, greet, NULL) == 0);
    (void)ct_format(path, sizeof path, "/tmp/ctrun-hold-test-%d", getpid());
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(write(fd, "first", 5) == 5);
    close(fd);
}

/* As the kernel does when the agent dies. Nothing listens at its name from then on. */
static void end_agent(void)
{
    shutdown(agent.listener, SHUT_RDWR);
    pthread_join(agent.greeter, NULL);
    close(agent.listener);
    for (int i = 0; i < agent.connection_count; i++)
        shutdown(agent.connections[i], SHUT_RDWR);
    for (int i = 0; i < agent.connection_count; i++)
        pthread_join(agent.threads[i], NULL);
}

static struct ctrun_hold *make(const char *text)
{
    struct ctrun_hold *hold;
    struct ctrun_error err;

    CHECK_OK(ctrun_hold_open(&hold, &session, path, NULL, &err));
    CHECK_OK(ctrun_hold_write(hold, text, strlen(text), &err));
    return hold;
}

static void save(const char *text)
{
    struct ctrun_hold *hold = make(text);
    struct ctrun_error err;

    CHECK_OK(ctrun_hold_commit(hold, &err));
    ctrun_hold_close(hold);
}

static bool has(int fd, const char *text)
{
    char bytes[16] = "";

    return pread(fd, bytes, strlen(text), 0) == (ssize_t)strlen(text) &&
           strcmp(bytes, text) == 0;
}

RANKS_TEST(a_wait_that_ends_without_an_answer_drops_no_file, 1)
{
    struct ctrun_hold *hold;
    struct ctrun_error err;

    begin_agent();
    hold = make("first");
    CHECK(ctrun_hold_wait(&session, 1, &err) == CTRUN_E_TIMEOUT);
    CHECK_OK(ctrun_hold_commit(hold, &err));
    ctrun_hold_close(hold);
    end_agent();
    return unlink(path);
}

RANKS_TEST(what_the_agent_had_when_it_ended_is_neither_written_nor_used, 1)
{
    struct ctrun_hold *hold;
    struct ctrun_error err;

    begin_agent();
    save("first");
    save("other");
    end_agent();
    for (int i = 0; i < 2; i++)
        CHECK(ctrun_hold_wait(&session, 60000, &err) == CTRUN_E_CLOSED);
    hold = make("later"); /* without an agent */
    CHECK(has(agent.memories[0], "first") && has(agent.memories[1], "other"));
    CHECK_OK(ctrun_hold_commit(hold, &err));
    ctrun_hold_close(hold);
    CHECK_OK(ctrun_hold_wait(&session, 60000, &err));
    return unlink(path);
}

/* The connection over which it waits is open when the agent ends. */
static int wait_for_lost_files(int rank, void *context)
{
    const bool is_owed = *(const bool *)context;
    struct ctrun_error err;

    agent.answers_waits = true;
    begin_agent();
    save("first");
    CHECK_OK(ctrun_hold_wait(&session, 60000, &err));
    if (is_owed)
        save("other");
    end_agent();
    CHECK(ctrun_hold_wait(&session, 60000, &err) == (is_owed ? CTRUN_E_CLOSED : 0));
    return unlink(path);
}

TEST(a_wait_after_the_end_of_the_agent_tells_whether_a_file_is_lost)
{
    bool is_owed = true;

    assert_int_equal(ranks_run(1, wait_for_lost_files, &is_owed), 0);
    is_owed = false;
    assert_int_equal(ranks_run(1, wait_for_lost_files, &is_owed), 0);
}

RANKS_TEST(after_the_end_of_the_agent_nothing_is_found, 1)
{
    struct ctrun_error err;
    int found;

    begin_agent();
    save("first");
    CHECK(ctrun_hold_find(&session, path, 60000, &found, &err) == 1);
    close(found);
    end_agent();
    CHECK_OK(ctrun_hold_find(&session, path, 60000, &found, &err));
    CHECK(found == -1);
    return unlink(path);
}

RANKS_TEST(an_error_of_the_disk_is_not_taken_for_a_missing_agent, 1)
{
    struct ctrun_error err;

    agent.answers_waits = true;
    agent.lost = -ENOENT;
    begin_agent();
    save("first");
    CHECK(ctrun_hold_wait(&session, 60000, &err) == -ENOENT);
    end_agent();
    return unlink(path);
}

RANKS_TEST(what_was_found_does_not_change_while_it_is_read, 1)
{
    struct ctrun_hold *hold;
    struct ctrun_error err;
    int found;

    begin_agent();
    save("first");
    CHECK(ctrun_hold_find(&session, path, 60000, &found, &err) == 1);
    save("other");
    hold = make("later"); /* the agent has "first" no more */
    CHECK(has(found, "first"));
    ctrun_hold_close(hold);
    close(found);
    end_agent();
    return unlink(path);
}

RANKS_TEST(a_small_file_after_a_large_one_needs_little_room, 1)
{
    struct ctrun_hold *hold;
    struct ctrun_error err;

    begin_agent();
    save("a large file");
    pthread_mutex_lock(&agent.lock);
    agent.room = 5;
    pthread_mutex_unlock(&agent.lock);
    save("small");
    CHECK_OK(ctrun_hold_open(&hold, &session, path, NULL, &err));
    CHECK(ctrun_hold_write(hold, "much larger", 11, &err) == CTRUN_E_RESOURCES);
    ctrun_hold_close(hold);
    end_agent();
    return unlink(path);
}

RANKS_TEST(a_child_of_fork_drops_nothing_of_its_parent, 1)
{
    struct ctrun_hold *hold;
    struct ctrun_error err;
    pid_t child;
    int status;

    begin_agent();
    hold = make("first");
    if ((child = fork()) == 0) {
        ctrun_hold_close(hold);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(ctrun_hold_commit(hold, &err));
    ctrun_hold_close(hold);
    end_agent();
    CHECK(agent.drops == 0);
    return unlink(path);
}

RANKS_TEST(without_an_agent_the_file_is_where_it_was_opened, 1)
{
    char here[] = "/tmp/ctrun-hold-here-XXXXXX",
         there[] = "/tmp/ctrun-hold-there-XXXXXX";
    struct ctrun_hold *hold;
    struct ctrun_error err;

    CHECK(mkdtemp(here) && mkdtemp(there) && chdir(here) == 0);
    CHECK_OK(ctrun_hold_open(&hold, &session, "held", NULL, &err));
    CHECK_OK(ctrun_hold_write(hold, "text", 4, &err));
    CHECK(chdir(there) == 0);
    CHECK_OK(ctrun_hold_commit(hold, &err));
    ctrun_hold_close(hold);
    CHECK(unlink("held") < 0);
    CHECK(chdir(here) == 0 && unlink("held") == 0);
    return rmdir(here) == 0 && rmdir(there) == 0 ? 0 : 1;
}
