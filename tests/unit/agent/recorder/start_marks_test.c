/* SPDX-License-Identifier: Apache-2.0 */
/* Who has sent the mark of a start. */
#include "agent/recorder/start_marks.h"

#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

struct seen {
    struct loop *loop;
    pid_t session;
    enum start_mark mark;
    char names[16];
};

static void on_step(void *context, pid_t session, enum start_mark mark,
                    const char *names)
{
    struct seen *seen = context;

    seen->session = session;
    assert_int_equal(mark, seen->mark++);
    (void)ct_copy(seen->names, sizeof seen->names, names);
    if (mark == START_STEPPED)
        loop_stop(seen->loop);
}

/* In a session of its own, as a worker is; the step is that of its child. Waits for the end of `held`, because a
 * process that has ended has no session any more. */
static void send_step(const char *path, int held)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const char *const texts[] = {"!import", "!init", "a,a.b"};
    char byte;
    int fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setsid() < 0)
        _exit(1);
    if (fork() == 0) {
        (void)ct_copy(address.sun_path, sizeof address.sun_path, path);
        fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        for (int i = 0; i < 3; i++)
            if (sendto(fd, texts[i], strlen(texts[i]), 0,
                       (const struct sockaddr *)&address, sizeof address) < 0)
                _exit(1);
        _exit(read(held, &byte, 1) != 0);
    }
    (void)wait(&fd);
    _exit(fd != 0);
}

TEST(a_mark_is_that_of_the_session_of_its_process)
{
    char above[] = "/tmp/ctrun-step-XXXXXX", path[PATH_MAX];
    struct seen seen = {0};
    struct recorder_folder *folder;
    struct start_marks *marks;
    struct ctrun_error err;
    int held[2], status;
    pid_t worker;

    assert_non_null(mkdtemp(above));
    assert_int_equal(setenv(CTL_DIR_ENV, above, 1), 0);
    assert_int_equal(recorder_folder_open(&folder, 0, &err), 0);
    assert_int_equal(loop_create(&seen.loop), 0);
    assert_int_equal(start_marks_open(&marks, seen.loop, folder, on_step, &seen, &err),
                     0);
    assert_int_equal(pipe(held), 0);
    recorder_folder_socket(folder, path, 0);
    if ((worker = fork()) == 0) {
        close(held[1]);
        send_step(path, held[0]);
    }
    loop_run(seen.loop);
    assert_int_equal(seen.session, worker);
    assert_string_equal(seen.names, "a,a.b");
    close(held[0]);
    close(held[1]);
    assert_int_equal(waitpid(worker, &status, 0), worker);
    assert_int_equal(status, 0);
    start_marks_close(marks);
    recorder_folder_close(folder);
    assert_int_equal(loop_destroy(seen.loop), 0);
    assert_int_equal(rmdir(above), 0);
}
