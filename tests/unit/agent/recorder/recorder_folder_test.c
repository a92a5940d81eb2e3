/* SPDX-License-Identifier: Apache-2.0 */
/* Agents of one user that start at the same time. */
#include "agent/recorder/recorder_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "tests/lib/test.h"

enum {
    AGENTS = 4,
    TIMES = 500
};

static int open_many(void)
{
    struct recorder_folder *folder;
    struct ctrun_error err;

    for (int i = 0; i < TIMES; i++) {
        if (recorder_folder_open(&folder, RECORDER_SERVE, &err) < 0) {
            print_error("%s\n", err.text);
            return 1;
        }
        recorder_folder_close(folder);
    }
    return 0;
}

TEST(agents_that_start_at_once_have_a_folder_each)
{
    char path[] = "/tmp/ctrun-folder-XXXXXX";
    int status, failed = 0;

    assert_non_null(mkdtemp(path));
    assert_int_equal(setenv(CTL_DIR_ENV, path, 1), 0);
    for (int i = 0; i < AGENTS; i++)
        if (fork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(open_many());
        }
    while (wait(&status) > 0)
        failed += status != 0;
    assert_int_equal(failed, 0);
    assert_int_equal(rmdir(path), 0);
}

/* Of an agent that was killed before its folder had its name. */
TEST(an_unfinished_folder_is_removed_once_it_is_old)
{
    static const char *const names[] = {"1.recorder-new", "2.recorder-new"};
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[] = "/tmp/ctrun-folder-XXXXXX";
    struct recorder_folder *folder;
    struct ctrun_error err;
    int above, file;

    assert_non_null(mkdtemp(path));
    assert_int_equal(setenv(CTL_DIR_ENV, path, 1), 0);
    above = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(above >= 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(mkdirat(above, names[i], 0700), 0);
    file = openat(above, "1.recorder-new/sitecustomize.py", O_WRONLY | O_CREAT, 0600);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(utimensat(above, names[0], long_ago, 0), 0);
    assert_int_equal(recorder_folder_open(&folder, RECORDER_SERVE, &err), 0);
    recorder_folder_close(folder);
    assert_int_not_equal(faccessat(above, names[0], F_OK, 0), 0);
    assert_int_equal(unlinkat(above, names[1], AT_REMOVEDIR), 0);
    close(above);
    assert_int_equal(rmdir(path), 0);
}
