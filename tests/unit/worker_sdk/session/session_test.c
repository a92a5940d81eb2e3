/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's place from its environment, its connection to the agent, and its error file. */
#include <errno.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/agent_socket.h"
#include "worker_sdk/client/crash.h"
#include "worker_sdk/client/progress.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/session/session_private.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/crash.h"
#include "worker_sdk/wire/progress.h"
#include "worker_sdk/wire/message.h"

static const char *const names[] = {
    CT_ENV_RANK,         CT_ENV_WORLD_SIZE,
    CT_ENV_LOCAL_RANK,   CT_ENV_LOCAL_WORLD_SIZE,
    CT_ENV_GROUP_RANK,   CT_ENV_MASTER_ADDR,
    CT_ENV_MASTER_PORT,  CT_ENV_RESTART_COUNT,
    CT_ENV_GENERATION,   CT_ENV_AGENT_SOCKET,
    CT_ENV_ERROR_FILE,   CT_ENV_USE_AGENT_STORE,
    CT_ENV_CRASH_REPORT, CT_ENV_MAY_SHRINK,
    CT_ENV_MAY_GROW,     CT_ENV_SHM_DISABLE,
};

/* Every test starts with an empty environment. */
static int setup(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    return 0;
}

static void set_good_environment(void)
{
    setenv(CT_ENV_RANK, "3", 1);
    setenv(CT_ENV_WORLD_SIZE, "4", 1);
    setenv(CT_ENV_LOCAL_RANK, "1", 1);
    setenv(CT_ENV_LOCAL_WORLD_SIZE, "2", 1);
    setenv(CT_ENV_GROUP_RANK, "1", 1);
    setenv(CT_ENV_MASTER_ADDR, "localhost", 1);
    setenv(CT_ENV_MASTER_PORT, "29500", 1);
    setenv(CT_ENV_RESTART_COUNT, "2", 1);
    setenv(CT_ENV_GENERATION, "18446744073709551615", 1);
}

/* A world of one needs no store. */
static void set_lone_environment(void)
{
    set_good_environment();
    setenv(CT_ENV_RANK, "0", 1);
    setenv(CT_ENV_WORLD_SIZE, "1", 1);
    setenv(CT_ENV_LOCAL_RANK, "0", 1);
    setenv(CT_ENV_LOCAL_WORLD_SIZE, "1", 1);
    setenv(CT_ENV_GROUP_RANK, "0", 1);
}

TEST_AROUND(nothing_set_is_a_run_of_one, setup, NULL)
{
    struct ctrun_session *session;

    setenv(CT_ENV_RANK, "", 1); /* an empty value counts as not set */
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    assert_int_equal(ctrun_rank(session), 0);
    assert_int_equal(ctrun_world_size(session), 1);
    assert_int_equal(ctrun_local_world_size(session), 1);
    assert_int_equal(ctrun_generation(session), 0);
    ctrun_step(session, 1); /* without an agent it does nothing */
    assert_int_equal(ctrun_metric(session, "loss", 1, NULL), 0);
    assert_int_equal(ctrun_metric(session, "the loss", 1, NULL), -EINVAL);
    assert_false(ctrun_should_stop(session));
    ctrun_close(session);
    ctrun_close(NULL);
}

TEST_AROUND(place_is_read_from_the_environment, setup, NULL)
{
    struct ctrun_session *session;

    set_good_environment();
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    assert_int_equal(ctrun_rank(session), 3);
    assert_int_equal(ctrun_world_size(session), 4);
    assert_int_equal(ctrun_local_rank(session), 1);
    assert_int_equal(ctrun_local_world_size(session), 2);
    assert_int_equal(ctrun_node_rank(session), 1);
    assert_int_equal(ctrun_restart_count(session), 2);
    assert_true(ctrun_generation(session) == UINT64_MAX);
    ctrun_close(session);
}

static uint64_t begin_group(void)
{
    struct ctrun_session *session;
    uint64_t number;

    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    number = (*ct_session_place(session).sequence)++;
    ctrun_close(session);
    return number;
}

/* Else the second session would meet the ranks of the first one's groups, which are gone. */
TEST_AROUND(sessions_of_a_process_number_their_groups_together, setup, NULL)
{
    struct ctrun_session *session;

    set_good_environment();
    assert_int_equal(begin_group(), 0);
    assert_int_equal(begin_group(), 1);
    setenv(CT_ENV_MASTER_PORT, "29501", 1); /* the store of another run */
    assert_int_equal(begin_group(), 0);
    set_good_environment();
    assert_int_equal(begin_group(), 2);
    setenv(CT_ENV_RESTART_COUNT, "3", 1);
    ct_alloc_fail_at(2);
    assert_int_equal(ctrun_open(&session, NULL, NULL), -ENOMEM);
    assert_null(session);
    assert_int_equal(begin_group(), 0);
}

TEST_AROUND(a_child_opens_no_group_on_the_session_of_its_parent, setup, NULL)
{
    struct ctrun_session *session;
    struct ctrun_group *group;
    struct ctrun_error err;
    pid_t child;
    int status;

    set_lone_environment();
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    if ((child = fork()) == 0)
        _exit(ctrun_group_open(&group, session, NULL, &err) != CTRUN_E_USAGE ||
              strncmp(err.text, "open group: process ", 20) != 0 ||
              ctrun_group_split(&group, session, NULL, 0, NULL, NULL) != CTRUN_E_USAGE);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ctrun_group_open(&group, session, NULL, NULL), 0);
    ctrun_group_close(group);
    ctrun_close(session);
}

TEST_AROUND(every_wrong_variable_is_named, setup, NULL)
{
    static const struct {
        const char *name;
        const char *value; /* NULL: unset */
    } cases[] = {
        {CT_ENV_RANK, NULL},           {CT_ENV_RANK, "4"},
        {CT_ENV_RANK, "-1"},           {CT_ENV_RANK, "1x"},
        {CT_ENV_WORLD_SIZE, NULL},     {CT_ENV_WORLD_SIZE, "0"},
        {CT_ENV_LOCAL_RANK, "2"},      {CT_ENV_LOCAL_WORLD_SIZE, "5"},
        {CT_ENV_GROUP_RANK, "4"},      {CT_ENV_MASTER_ADDR, NULL},
        {CT_ENV_MASTER_PORT, NULL},    {CT_ENV_MASTER_PORT, "65536"},
        {CT_ENV_RESTART_COUNT, "two"}, {CT_ENV_GENERATION, "-1"},
        {CT_ENV_SHM_DISABLE, "yes"}, /* stays set: the last one */
    };
    struct ctrun_session *session;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_good_environment();
        if (cases[i].value)
            setenv(cases[i].name, cases[i].value, 1);
        else
            unsetenv(cases[i].name);
        assert_int_equal(ctrun_open(&session, NULL, &err), CTRUN_E_BAD_ENVIRONMENT);
        assert_null(session);
        if (!strstr(err.text, cases[i].name))
            fail_msg("'%s' should name %s", err.text, cases[i].name);
    }
}

TEST_AROUND(a_lone_variable_is_no_run_of_one, setup, NULL)
{
    struct ctrun_session *session;
    struct ctrun_error err;

    setenv(CT_ENV_MASTER_ADDR, "head", 1);
    assert_int_equal(ctrun_open(&session, NULL, &err), CTRUN_E_BAD_ENVIRONMENT);
    assert_non_null(strstr(err.text, "WORLD_SIZE is not set"));
}

/* Listens as an agent does, at an abstract name that the kernel chooses. */
static int listen_as_agent(char *name, size_t size)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t length = sizeof addr.sun_family;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&addr, length), 0);
    assert_int_equal(listen(fd, 4), 0);
    length = sizeof addr;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &length), 0);
    assert_true(ct_format(name, size, "@%.*s",
                          (int)(length - offsetof(struct sockaddr_un, sun_path) - 1),
                          addr.sun_path + 1) > 0);
    return fd;
}

/* The last message that the agent received. */
static union {
    struct ct_worker_hello hello;
    struct ct_worker_step step;
    struct ct_worker_crash_record crash_record;
    struct ct_worker_progress progress;
} message;

/* Reads the next frame, which must be of `kind`. The socket has a time limit. */
static void expect_message(int fd, struct ct_buf *in, enum ct_message_kind kind)
{
    struct ct_message out;
    struct ct_frame frame;
    uint8_t *room;
    int used;

    while ((used = ct_frame_decode(ct_buf_data(in), ct_buf_length(in), &frame)) == 0) {
        ssize_t n;

        assert_int_equal(ct_buf_reserve(in, 512, &room), 0);
        n = recv(fd, room, 512, 0);
        assert_true(n > 0);
        ct_buf_commit(in, (size_t)n);
    }
    assert_true(used > 0);
    assert_int_equal(ct_message_decode(&frame, &out, &message, sizeof message), 0);
    assert_int_equal(out.kind, kind);
    ct_buf_consume(in, (size_t)used);
}

TEST_AROUND(steps_go_up_and_the_wish_to_stop_comes_down, setup, NULL)
{
    static const struct ct_worker_should_stop drain = {.reason = "drain"};
    const struct ct_message stop = {CT_MESSAGE_WORKER_SHOULD_STOP,
                                    .worker_should_stop = &drain};
    struct timeval limit = {.tv_sec = 30};
    struct ctrun_session *session;
    struct ct_buf in;
    struct ct_buf out;
    char name[128];
    int listener = listen_as_agent(name, sizeof name);
    int fd;

    ct_buf_init(&in, 4096);
    ct_buf_init(&out, 4096);
    set_lone_environment();
    setenv(CT_ENV_AGENT_SOCKET, name, 1);
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    expect_message(fd, &in, CT_MESSAGE_WORKER_HELLO);
    assert_int_equal(message.hello.rank, 0);
    assert_true(message.hello.generation == UINT64_MAX);

    for (uint64_t step = 1; step <= 1000000; step++)
        ctrun_step(session, step);
    expect_message(fd, &in, CT_MESSAGE_WORKER_PROGRESS);
    expect_message(fd, &in, CT_MESSAGE_WORKER_STEP);
    assert_int_equal(message.step.step, 1); /* the first step is sent at once */

    assert_false(ctrun_should_stop(session));
    assert_int_equal(ct_message_encode(&out, &stop), 0);
    for (size_t i = 0; i < ct_buf_length(&out); i++) { /* one byte at a time */
        assert_false(ctrun_should_stop(session));
        assert_int_equal(send(fd, ct_buf_data(&out) + i, 1, 0), 1);
    }
    assert_true(ctrun_should_stop(session));
    assert_true(ctrun_should_stop(session));

    ctrun_close(session);
    do
        expect_message(fd, &in, CT_MESSAGE_WORKER_STEP);
    while (message.step.step != 1000000); /* the last one is sent by the close */
    ct_buf_deinit(&in);
    ct_buf_deinit(&out);
    close(fd);
    close(listener);
}

TEST(the_loss_of_a_node_comes_down_and_stays)
{
    static const struct ct_worker_should_stop no_reason;
    static const struct ct_worker_node_lost node_b = {.text = "node b is lost"};
    const struct ct_message stop = {CT_MESSAGE_WORKER_SHOULD_STOP,
                                    .worker_should_stop = &no_reason};
    const struct ct_message lost = {CT_MESSAGE_WORKER_NODE_LOST,
                                    .worker_node_lost = &node_b};
    struct ct_agent_socket agent;
    struct ctrun_error err;
    struct ct_buf out;
    char name[128];
    int listener = listen_as_agent(name, sizeof name);
    int fd;

    ct_buf_init(&out, 4096);
    ct_agent_socket_init(&agent, name, 3, 1);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ct_message_encode(&out, &stop), 0);
    assert_int_equal(send(fd, ct_buf_data(&out), ct_buf_length(&out), 0),
                     (ssize_t)ct_buf_length(&out));
    assert_true(ct_agent_socket_should_stop(&agent));
    assert_int_equal(ct_agent_socket_check_loss(&agent, &err), 0);
    ct_buf_consume(&out, ct_buf_length(&out));
    assert_int_equal(ct_message_encode(&out, &lost), 0);
    for (size_t i = 0; i < ct_buf_length(&out); i++) {
        assert_int_equal(ct_agent_socket_check_loss(&agent, &err), 0);
        assert_int_equal(send(fd, ct_buf_data(&out) + i, 1, 0), 1);
    }
    assert_int_equal(ct_agent_socket_check_loss(&agent, &err), CTRUN_E_PEER_LOST);
    assert_string_equal(err.text, "node b is lost");
    close(fd);
    assert_int_equal(ct_agent_socket_check_loss(&agent, NULL), CTRUN_E_PEER_LOST);
    ct_agent_socket_deinit(&agent);
    ct_buf_deinit(&out);
    close(listener);
}

/* Receives bytes, which are appended to `in`, and the descriptor that came with them; -1: none
 * came. */
static int receive_descriptor(int fd, struct ct_buf *in)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    uint8_t bytes[256];
    struct iovec data = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr packet = {.msg_iov = &data,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    const ssize_t n = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = CMSG_FIRSTHDR(&packet);
    int passed = -1;

    assert_true(n > 0);
    assert_int_equal(ct_buf_append(in, bytes, (size_t)n), 0);
    if (head)
        memcpy(&passed, CMSG_DATA(head), sizeof passed);
    return passed;
}

/* A session, and its agent, which has the descriptor of the first messages. */
struct pair {
    struct ctrun_session *session;
    struct ct_buf in;
    char name[128];
    int listener, fd, passed;
};

static void open_pair(struct pair *pair, const char *crash_report)
{
    *pair = (struct pair){.passed = -1};
    pair->listener = listen_as_agent(pair->name, sizeof pair->name);
    ct_buf_init(&pair->in, 4096);
    set_good_environment();
    setenv(CT_ENV_AGENT_SOCKET, pair->name, 1);
    setenv(CT_ENV_CRASH_REPORT, crash_report, 1);
    assert_int_equal(ctrun_open(&pair->session, NULL, NULL), 0);
    pair->fd = accept4(pair->listener, NULL, NULL, SOCK_CLOEXEC);
}

static void receive_first(struct pair *pair, enum ct_message_kind kind)
{
    while (pair->passed < 0)
        pair->passed = receive_descriptor(pair->fd, &pair->in);
    expect_message(pair->fd, &pair->in, CT_MESSAGE_WORKER_HELLO);
    expect_message(pair->fd, &pair->in, kind);
}

static void close_pair(struct pair *pair)
{
    ctrun_close(pair->session);
    close(pair->passed);
    close(pair->fd);
    close(pair->listener);
    ct_buf_deinit(&pair->in);
}

TEST_AROUND(the_crash_record_is_handed_over_when_it_is_asked_for, setup, NULL)
{
    struct ct_crash record;
    struct pair pair;

    open_pair(&pair, "1");
    receive_first(&pair, CT_MESSAGE_WORKER_CRASH_RECORD);
    assert_int_equal(message.crash_record.size, sizeof record);
    assert_int_equal(pread(pair.passed, &record, sizeof record, 0), sizeof record);
    assert_int_equal(record.magic, CT_CRASH_MAGIC);
    assert_int_equal(record.state, CT_CRASH_EMPTY);
    /* A second call: for the stack of this thread. */
    assert_int_equal(ctrun_crash_report(pair.session, NULL), 0);
    close_pair(&pair);

    setenv(CT_ENV_CRASH_REPORT, "on", 1);
    assert_int_equal(ctrun_open(&pair.session, NULL, NULL), CTRUN_E_BAD_ENVIRONMENT);
}

TEST(the_last_step_can_be_read_though_it_was_never_sent)
{
    struct ct_progress page;
    struct pair pair;

    open_pair(&pair, "0");
    for (uint64_t step = 1; step <= 400; step++)
        ctrun_step(pair.session, step);
    receive_first(&pair, CT_MESSAGE_WORKER_PROGRESS);
    assert_int_equal(pread(pair.passed, &page, sizeof page, 0), sizeof page);
    assert_int_equal(page.magic, CT_PROGRESS_MAGIC);
    assert_int_equal(page.step, 400);
    assert_int_equal(page.waits, 0);
    ct_progress_begin_wait();
    assert_int_equal(pread(pair.passed, &page, sizeof page, 0), sizeof page);
    assert_int_equal(page.waits, 1);
    ct_progress_end_wait();
    close_pair(&pair);
}

/* Another message just before it does not hold it back, only the steps behind it. */
TEST(the_first_step_is_sent_at_once)
{
    struct pair pair;

    open_pair(&pair, "0");
    assert_int_equal(ctrun_metric(pair.session, "loss", 0.5, NULL), 0);
    for (uint64_t step = 7; step <= 100000; step++)
        ctrun_step(pair.session, step);
    receive_first(&pair, CT_MESSAGE_WORKER_PROGRESS);
    expect_message(pair.fd, &pair.in, CT_MESSAGE_WORKER_STEP);
    assert_int_equal(message.step.step, 7);
    close_pair(&pair);
}

/* Not only the first call is sent at once: the first step that has a connection is. */
TEST(a_step_is_sent_at_once_where_the_first_found_the_queue_full)
{
    struct pair pair = {.passed = -1};
    int fillers[8], count = 0;

    pair.listener = listen_as_agent(pair.name, sizeof pair.name);
    while (count < 8 && (fillers[count] = ct_agent_socket_connect(pair.name)) >= 0)
        count++;
    assert_int_equal(fillers[count], -EAGAIN);
    ct_buf_init(&pair.in, 4096);
    set_good_environment();
    setenv(CT_ENV_AGENT_SOCKET, pair.name, 1);
    assert_int_equal(ctrun_open(&pair.session, NULL, NULL), 0);
    ctrun_step(pair.session, 7);
    while (count > 0) {
        close(accept4(pair.listener, NULL, NULL, SOCK_CLOEXEC));
        close(fillers[--count]);
    }
    assert_int_equal(ct_agent_socket_check_loss(&pair.session->agent, NULL),
                     0); /* connects */
    ctrun_step(pair.session, 8);
    pair.fd = accept4(pair.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    receive_first(&pair, CT_MESSAGE_WORKER_PROGRESS);
    expect_message(pair.fd, &pair.in, CT_MESSAGE_WORKER_STEP);
    assert_int_equal(message.step.step, 8);
    close_pair(&pair);
}

TEST(what_a_rank_measures_can_be_read_and_names_are_checked)
{
    struct ct_progress page;
    struct ctrun_error err;
    struct pair pair;
    char name[16];

    open_pair(&pair, "0");
    assert_int_equal(ctrun_metric(pair.session, "loss", 0.5, &err), 0);
    receive_first(&pair, CT_MESSAGE_WORKER_PROGRESS);
    assert_int_equal(pread(pair.passed, &page, sizeof page, 0), sizeof page);
    assert_int_equal(page.metric_count, 1);
    assert_string_equal(page.metrics[0].name, "loss");

    assert_int_equal(ctrun_metric(pair.session, "loss", NAN, &err), 0);
    assert_int_equal(ctrun_metric(pair.session, "9x", 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'9x'"));
    assert_int_equal(ctrun_metric(pair.session, "ctrund_runs", 1, &err), -EINVAL);
    assert_int_equal(ctrun_metric(pair.session, "", 1, NULL), -EINVAL);
    for (int i = 1; i < CT_METRICS_MAX; i++) {
        (void)ct_format(name, sizeof name, "m%d", i);
        assert_int_equal(ctrun_metric(pair.session, name, i, &err), 0);
    }
    assert_int_equal(ctrun_metric(pair.session, "more", 1, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "32"));
    assert_int_equal(ctrun_metric(pair.session, "m31", 7, &err), 0);
    assert_int_equal(pread(pair.passed, &page, sizeof page, 0), sizeof page);
    assert_int_equal(page.metric_count, CT_METRICS_MAX);
    assert_true(isnan(ct_metric_from_bits(page.metrics[0].bits)));
    assert_true(ct_metric_from_bits(page.metrics[31].bits) == 7);
    close_pair(&pair);
}

/* As a daemon that closes all inherited descriptors, and opens another file with that number. */
TEST(a_child_leaves_the_number_of_its_parent_s_record_alone)
{
    const int record = ct_crash_arm();
    pid_t child;
    int status;

    assert_true(record >= 0);
    if ((child = fork()) == 0) {
        int own;

        if (dup2(STDERR_FILENO, record) != record || (own = ct_crash_arm()) < 0)
            _exit(2);
        _exit(own == record);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ct_crash_disarm();
}

TEST_AROUND(an_agent_that_dies_or_talks_nonsense_is_ignored, setup, NULL)
{
    struct ctrun_session *session;
    char name[128];
    int listener = listen_as_agent(name, sizeof name);
    int fd;

    set_lone_environment();
    setenv(CT_ENV_AGENT_SOCKET, name, 1);
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(send(fd, "GET / HTTP/1.0\r\n", 16, 0), 16);
    assert_false(ctrun_should_stop(session));
    close(fd);
    ctrun_step(session, 1);
    ctrun_close(session);

    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(fd);
    for (uint64_t step = 0; step < 10; step++)
        ctrun_step(session, step); /* no SIGPIPE */
    assert_false(ctrun_should_stop(session));
    ctrun_close(session);

    close(listener);
    assert_int_equal(ctrun_open(&session, NULL, NULL), 0); /* nobody listens now */
    ctrun_step(session, 1);
    ctrun_close(session);
}

TEST_AROUND(last_words_are_in_torchruns_form, setup, NULL)
{
    struct ctrun_error err = {.code = CTRUN_E_PEER_LOST, .text = "rank 1 \"is\"\ngone"};
    static const char begin[] =
        "{\"message\": {\"message\": \"E_PEER_LOST: rank 1 \\\"is\\\"\\u000agone\", "
        "\"extraInfo\": {\"py_callstack\": \"E_PEER_LOST: rank 1 "
        "\\\"is\\\"\\u000agone\", "
        "\"timestamp\": \"";
    char path[] = "/tmp/ctrun_session_XXXXXX";
    char file[64];
    char text[2048] = "";
    FILE *f;

    assert_int_equal(ctrun_fail_worker(&err), 1); /* no error file was asked for */
    assert_non_null(mkdtemp(path));
    (void)ct_format(file, sizeof file, "%s/error.json", path);
    setenv(CT_ENV_ERROR_FILE, file, 1);
    assert_int_equal(ctrun_fail_worker(&err), 1);
    assert_non_null(f = fopen(file, "re"));
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_memory_equal(text, begin, sizeof begin - 1);
    assert_string_equal(text + strspn(text + sizeof begin - 1, "0123456789") +
                            sizeof begin - 1,
                        "\", \"ctrun_error\": -20008}}}\n");
    memset(err.text, 1, sizeof err.text - 1); /* the longest text after escaping */
    err.text[sizeof err.text - 1] = '\0';
    assert_int_equal(ctrun_fail_worker(&err), 1);
    assert_int_equal(ctrun_fail_worker(NULL), 1);
    assert_int_equal(ctrun_fail_worker(&(struct ctrun_error){.text = "no data"}), 1);
    assert_non_null(f = fopen(file, "re"));
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    assert_non_null(strstr(text, "{\"message\": \"no data\""));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(path), 0); /* no temporary file is left */
}

TEST_AROUND(a_store_needs_an_address, setup, NULL)
{
    struct ctrun_session *session;
    struct ctrun_store *store;
    struct ctrun_error err;

    assert_int_equal(ctrun_open(&session, NULL, NULL), 0);
    assert_int_equal(ctrun_store_open(&store, session, &err), CTRUN_E_BAD_ENVIRONMENT);
    assert_non_null(strstr(err.text, "MASTER_ADDR"));
    ctrun_store_close(store);
    ctrun_close(session);
}

/* An error that no retry can help ends the wait at once, and the message does not report the whole
 * timeout as waited. */
TEST(a_store_that_cannot_be_asked_tells_the_time_that_was_tried)
{
    struct ctrun_store *store = NULL;
    struct rlimit before, none;
    struct ctrun_error err;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    rc = ct_store_connect(&store, "127.0.0.1", 1, 3600000, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, -EMFILE);
    assert_null(store);
    assert_non_null(strstr(err.text, "Too many open files"));
    assert_null(strstr(err.text, "3600.0 s"));
}
