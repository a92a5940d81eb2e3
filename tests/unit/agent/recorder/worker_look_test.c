/* SPDX-License-Identifier: Apache-2.0 */
/* A worker whose recorder does not answer, beside one whose recorder does. */
#include "agent/recorder/worker_look.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

enum {
    SILENT,
    GOOD,
    WORKERS,
    QUESTIONS = 2 /* one of each recorder */
};

static int listen_for(const struct recorder_folder *folder, pid_t pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char path[PATH_MAX];

    recorder_folder_socket(folder, path, pid);
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, QUESTIONS), 0);
    return fd;
}

static void *answer(void *context)
{
    static const char text[] =
        "HTTP/1.1 200 OK\r\n\r\n"
        "{\"entries\":[{\"process_group\":[\"0\",\"default_pg\"],"
        "\"collective_seq_id\":1,\"time_created_ns\":1000,"
        "\"profiling_name\":\"gloo:all_reduce\",\"state\":\"completed\"}]}";
    char question[512];

    for (int i = 0; i < QUESTIONS; i++) {
        const int fd = accept(*(const int *)context, NULL, NULL);

        if (fd < 0)
            break;
        (void)!read(fd, question, sizeof question);
        (void)send(fd, text, sizeof text - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

struct seen {
    struct loop *loop;
    bool has_recorder[WORKERS];
    int call_count[WORKERS];
};

static void note(void *context, struct worker_seen *list, int count)
{
    struct seen *seen = context;

    for (int i = 0; i < count; i++) {
        seen->has_recorder[i] = list[i].has_recorder;
        seen->call_count[i] = list[i].call_count;
    }
    loop_stop(seen->loop);
}

static void a_silent_recorder_hides_no_other(void **state)
{
    struct worker_seen *list = ct_zalloc_array(WORKERS, sizeof *list);
    char path[] = "/tmp/ctrun-look-XXXXXX";
    struct recorder_folder *folder;
    struct ctrun_error err;
    struct seen seen = {0};
    pthread_t server;
    int listeners[WORKERS];

    assert_non_null(mkdtemp(path));
    assert_int_equal(setenv(CTL_DIR_ENV, path, 1), 0);
    assert_int_equal(recorder_folder_open(&folder, &err), 0);
    list[SILENT] = (struct worker_seen){.pid = getppid(), .wants_calls = true};
    list[GOOD] = (struct worker_seen){.pid = getpid(), .wants_calls = true};
    for (int i = 0; i < WORKERS; i++)
        listeners[i] = listen_for(folder, list[i].pid);
    assert_int_equal(pthread_create(&server, NULL, answer, &listeners[GOOD]), 0);
    assert_int_equal(loop_create(&seen.loop), 0);
    assert_non_null(worker_look_start(seen.loop, folder, list, WORKERS, note, &seen));
    loop_run(seen.loop);
    assert_int_equal(shutdown(listeners[GOOD], SHUT_RDWR), 0);
    pthread_join(server, NULL);
    for (int i = 0; i < WORKERS; i++)
        close(listeners[i]);
    assert_int_equal(loop_destroy(seen.loop), 0);
    recorder_folder_close(folder);
    assert_int_equal(rmdir(path), 0);
    assert_false(seen.has_recorder[SILENT]);
    assert_true(seen.has_recorder[GOOD]);
    assert_int_equal(seen.call_count[GOOD], QUESTIONS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_recorder_hides_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
