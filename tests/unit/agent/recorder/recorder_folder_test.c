/* SPDX-License-Identifier: Apache-2.0 */
/* Agents of one user that start at the same time. */
#include "agent/recorder/recorder_folder.h"

#include <stdlib.h>
#include <sys/prctl.h>
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
        if (recorder_folder_open(&folder, &err) < 0) {
            print_error("%s\n", err.text);
            return 1;
        }
        recorder_folder_close(folder);
    }
    return 0;
}

static void agents_that_start_at_once_have_a_folder_each(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_that_start_at_once_have_a_folder_each),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
