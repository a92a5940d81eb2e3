/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/control/ctl_mark_file.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

enum {
    NOW_MS = 5000000,
    LEFT_MS = 4999000
};

static char folder[] = "/tmp/ctrun-mark-XXXXXX";

/* The call that fails; NULL: none does. */
static const char *failing;

static bool must_fail(const char *call)
{
    if (!failing || strcmp(call, failing) != 0)
        return false;
    errno = EIO;
    return true;
}

int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    return must_fail("openat") ? -1 : __real_openat(dir, path, flags, 0600);
}

ssize_t __real_read(int fd, void *data, size_t length);
ssize_t __wrap_read(int fd, void *data, size_t length);
ssize_t __wrap_read(int fd, void *data, size_t length)
{
    return must_fail("read") ? -1 : __real_read(fd, data, length);
}

ssize_t __real_write(int fd, const void *data, size_t length);
ssize_t __wrap_write(int fd, const void *data, size_t length);
ssize_t __wrap_write(int fd, const void *data, size_t length)
{
    return must_fail("write") ? -1 : __real_write(fd, data, length);
}

static int begin(void **state)
{
    memcpy(folder + sizeof folder - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    return mkdtemp(folder) && setenv(CTL_DIR_ENV, folder, 1) == 0 ? 0 : -1;
}

static int end(void **state)
{
    (void)ctl_mark_find("job", 2 * NOW_MS); /* all marks are too old at that time */
    return rmdir(folder);
}

TEST_AROUND(who_ended_in_peace_is_found_with_its_time, begin, end)
{
    assert_int_equal(ctl_mark_find("job", NOW_MS), 0);
    ctl_mark_leave("job", LEFT_MS);
    ctl_mark_leave("job-2", LEFT_MS + 1); /* of another run */
    assert_int_equal(ctl_mark_find("job", NOW_MS), LEFT_MS);
    assert_int_equal(ctl_mark_find("job", NOW_MS), LEFT_MS); /* every search finds it */
    assert_int_equal(ctl_mark_find("job-2", NOW_MS), LEFT_MS + 1);
}

/* Leaves what a killed agent leaves. */
static void leave(int dir, const char *run_id, const char *suffix)
{
    char name[CTL_DIR_NAME_MAX];
    int fd;

    ctl_dir_name(name, run_id, 9, suffix);
    fd = ctl_dir_listen(dir, name, SOCK_STREAM);
    assert_true(fd >= 0);
    close(fd);
}

TEST_AROUND(who_was_killed_counts_from_when_that_is_noticed, begin, end)
{
    char name[CTL_DIR_NAME_MAX];
    const int dir = ctl_dir_open(folder, false, NULL);
    int live;

    ctl_mark_leave("job", LEFT_MS);
    leave(dir, "job-2", CTL_SOCKET_SUFFIX); /* of another run */
    ctl_dir_name(name, "job", 8, CTL_SOCKET_SUFFIX);
    live = ctl_dir_listen(dir, name, SOCK_STREAM); /* it still listens */
    assert_int_equal(ctl_mark_find("job", NOW_MS), LEFT_MS);
    leave(dir, "job", CTL_SOCKET_SUFFIX);
    assert_int_equal(ctl_mark_find("job", NOW_MS + 1), NOW_MS + 1);
    assert_int_equal(ctl_mark_find("job", NOW_MS + 2), NOW_MS + 1);
    assert_int_equal(ctl_mark_find("job-2", NOW_MS + 2), NOW_MS);
    close(live);
    assert_int_equal(unlinkat(dir, name, 0), 0);
    close(dir);
}

TEST_AROUND(whoever_notices_that_it_was_killed_leaves_the_mark, begin, end)
{
    const int dir = ctl_dir_open(folder, false, NULL);
    char name[CTL_DIR_NAME_MAX];

    leave(dir, "job", CTL_WORKER_SUFFIX);
    ctl_dir_sweep(dir, CTL_WORKER_SUFFIX, NOW_MS);
    assert_int_equal(ctl_mark_find("job", NOW_MS),
                     0); /* only of the agent's own socket */
    leave(dir, "job", CTL_SOCKET_SUFFIX);
    ctl_dir_sweep(dir, CTL_SOCKET_SUFFIX, LEFT_MS);
    assert_int_equal(ctl_mark_find("job", NOW_MS), LEFT_MS);
    ctl_dir_name(name, "job", 9, CTL_SOCKET_SUFFIX);
    leave(dir, "job", CTL_SOCKET_SUFFIX);
    assert_int_equal(ctl_dir_connect(dir, name, SOCK_STREAM), -ECONNREFUSED);
    assert_int_equal(ctl_dir_connect(dir, name, SOCK_STREAM), -ENOENT);
    assert_in_range(ctl_mark_find("job", ct_now_ms()), 1, ct_now_ms());
    ctl_dir_sweep(dir, CTL_SOCKET_SUFFIX, ct_now_ms() + 3600000);
    assert_int_equal(ctl_mark_find("job", ct_now_ms()),
                     0); /* it was too old at that time */
    close(dir);
}

static void write_mark(const char *text)
{
    const int dir = ctl_dir_open(folder, false, NULL);
    const int fd = openat(dir, "job-7" CTL_MARK_SUFFIX, O_WRONLY | O_CREAT, 0600);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    close(dir);
}

TEST_AROUND(what_is_none_of_this_boot_is_removed, begin, end)
{
    static const char *const texts[] = {
        "", "x", "00000000-0000-0000-0000-000000000000 4999000\n",
        "00000000-0000-0000-0000-0000000000004999000000000000000000000000000000000"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_mark(texts[i]);
        assert_int_equal(ctl_mark_find("job", NOW_MS), 0);
        write_mark(texts[i]);
        assert_int_equal(ctl_mark_find("other", NOW_MS), 0);
    }
    ctl_mark_leave("job", NOW_MS + 60000);   /* in the future */
    ctl_mark_leave("old", NOW_MS - 3600000); /* too old: no worker lives that long */
    assert_int_equal(ctl_mark_find("job", NOW_MS), 0);
}

/* It looked at the clock a moment later, and wrote the mark before we look for it. */
TEST_AROUND(a_mark_that_another_process_writes_meanwhile_stays, begin, end)
{
    const int dir = ctl_dir_open(folder, false, NULL);

    leave(dir, "job", CTL_SOCKET_SUFFIX);
    ctl_dir_sweep(dir, CTL_SOCKET_SUFFIX, NOW_MS);
    assert_int_equal(ctl_mark_find("other", NOW_MS - 2), 0);
    assert_int_equal(ctl_mark_find("job", NOW_MS - 1), NOW_MS - 1);
    assert_int_equal(ctl_mark_find("job", NOW_MS + 1), NOW_MS);
    close(dir);
}

TEST_AROUND(root_does_not_wait_for_marks_of_another_user, begin, end)
{
    if (getuid() != 0)
        skip();
    ctl_mark_leave("job", LEFT_MS);
    assert_int_equal(chown(folder, 65534, (gid_t)-1), 0);
    assert_int_equal(ctl_mark_find("job", NOW_MS), 0);
    assert_int_equal(chown(folder, 0, (gid_t)-1), 0);
    assert_int_equal(ctl_mark_find("job", NOW_MS), LEFT_MS); /* it was not touched */
}

TEST_AROUND(a_mark_that_cannot_be_written_or_read_is_none, begin, end)
{
    static const char *const calls[] = {"openat", "read", "write"};
    const int dir = ctl_dir_open(folder, false, NULL);

    for (int i = 0; i < 3; i++) {
        failing = calls[i];
        ctl_mark_file_write(dir, "job-1.left", LEFT_MS);
        failing = NULL;
        assert_int_equal(faccessat(dir, "job-1.left", F_OK, 0), -1);
        assert_int_equal(faccessat(dir, ".job-1.left", F_OK, 0), -1);
        ctl_mark_file_write(dir, "job-1.left", LEFT_MS);
        failing = calls[i];
        assert_int_equal(ctl_mark_file_read(dir, "job-1.left", NOW_MS),
                         strcmp(calls[i], "write") == 0 ? LEFT_MS : 0);
        failing = NULL;
        (void)unlinkat(dir, "job-1.left", 0);
    }
    close(dir);
}
