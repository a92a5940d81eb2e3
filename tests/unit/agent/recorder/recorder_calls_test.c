/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a worker by the answers of its recorders. */
#include "agent/recorder/recorder_calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/recorder/recorder_client.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

enum {
    PID = 1 << 23 /* no process has it, so it has no child either */
};

static char folder[] = "/tmp/ctrun-calls-XXXXXX\0"; /* with room for a slash */
static char path[108];
static int listener;
static const char *known =
    "/fr_trace_json ";      /* the one handler, of torch's own recorder */
static const char *entries; /* its answer */

static void *answer(void *context)
{
    char question[512], text[1024];

    (void)context;
    for (int i = 0; i < RECORDER_KINDS; i++) {
        const int fd = accept(listener, NULL, NULL);
        const ssize_t length = read(fd, question, sizeof question - 1);

        question[length > 0 ? length : 0] = '\0';
        snprintf(text, sizeof text, "HTTP/1.1 %s\r\n\r\n{\"entries\":[%s]}",
                 strstr(question, known) ? "200 OK" : "404 None", entries);
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static int listen_as(int pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(path, sizeof path, "%s%d", folder, pid);
    memcpy(address.sun_path, path, sizeof path);
    return bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
                   listen(fd, RECORDER_KINDS) == 0
               ? fd
               : -1;
}

static int begin(void **state)
{
    (void)state;
    memcpy(strchr(folder, '-') + 1, "calls-XXXXXX", sizeof "calls-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    folder[strlen(folder)] = '/';
    return (listener = listen_as(PID)) < 0 ? -1 : 0;
}

static int end(void **state)
{
    (void)state;
    close(listener);
    unlink(path);
    return rmdir(folder);
}

static void ask(struct ct_buf *out, const char *answered)
{
    const struct recorder_place place = {.rank = 7, .pid = PID};
    pthread_t thread;

    entries = answered;
    ct_buf_init(out, 4096);
    assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
    assert_int_equal(recorder_calls_write(out, folder, &place, 1, ct_now_ms() + 600000),
                     0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void expect(const char *first, const char *last, const char *answered)
{
    struct ct_buf out;

    ask(&out, answered);
    assert_int_equal(ct_buf_append(&out, "", 1), 0);
    assert_true(strncmp((const char *)ct_buf_data(&out), first, strlen(first)) == 0);
    assert_non_null(strstr((const char *)ct_buf_data(&out), last));
    ct_buf_deinit(&out);
}

#define CALL(number, state)                                                            \
    "{\"process_group\":[\"0\",\"default_pg\"],\"collective_seq_id\":" #number         \
    ",\"time_created_ns\":1700000000000000000,\"profiling_name\":\"gloo:all_reduce\"," \
    "\"input_sizes\":[[3]],\"input_dtypes\":[\"Float\"],\"state\":\"" state "\"}"

TEST_AROUND(a_call_that_is_not_complete_is_named, begin, end)
{
    expect(
        "rank 7 has not completed gloo:all_reduce 5 of default_pg, Float[3], called ",
        " s ago\n", CALL(4, "completed") "," CALL(5, "scheduled"));
}

TEST_AROUND(the_last_call_is_named_where_all_are_complete, begin, end)
{
    expect("rank 7 has completed gloo:all_reduce 5 of default_pg, Float[3], called ",
           " s ago, and no later call is known\n",
           CALL(4, "completed") "," CALL(5, "completed"));
}

TEST_AROUND(a_completed_call_of_nccl_is_named, begin, end)
{
    known = "/dump_nccl_trace_json "; /* of all calls, not of the active ones only */
    expect("rank 7 has completed gloo:all_reduce 5 of default_pg, Float[3], called ",
           " s ago, and no later call is known\n", CALL(5, "completed"));
    known = "/fr_trace_json ";
}

TEST_AROUND(nothing_is_said_of_a_rank_without_a_call, begin, end)
{
    struct ct_buf out;

    ask(&out, "");
    assert_int_equal(ct_buf_length(&out), 0);
    ct_buf_deinit(&out);
}

TEST(nothing_is_said_of_a_rank_without_a_recorder)
{
    const struct recorder_place place = {.rank = 7, .pid = PID};
    struct ct_buf out;

    ct_buf_init(&out, 4096);
    assert_int_equal(recorder_calls_write(&out, "/nowhere/", &place, 1, 0), 0);
    assert_int_equal(ct_buf_length(&out), 0);
    ct_buf_deinit(&out);
}

TEST_AROUND(a_rank_that_does_not_answer_hides_no_other, begin, end)
{
    const struct recorder_place list[] = {{.rank = 0, .pid = PID + 1},
                                          {.rank = 1, .pid = PID}};
    const int silent = listen_as(PID + 1);
    struct ct_buf out;
    pthread_t thread;

    assert_true(silent >= 0);
    entries = CALL(5, "scheduled");
    ct_buf_init(&out, 4096);
    assert_int_equal(pthread_create(&thread, NULL, answer, NULL), 0);
    assert_int_equal(recorder_calls_write(&out, folder, list, 2, ct_now_ms() + 2000),
                     0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(ct_buf_length(&out) > 0);
    assert_true(strncmp((const char *)ct_buf_data(&out), "rank 1 has not ", 15) == 0);
    ct_buf_deinit(&out);
    close(silent);
    unlink(path);
    snprintf(path, sizeof path, "%s%d", folder, PID);
}
