/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups are folders of the test. */
#include <sys/resource.h>
#include <unistd.h>

#include "agent/process/fork_limit.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

static char root[sizeof "/tmp/ctrun-limit-XXXXXX"]; /* of one test */

static void put(const char *name, const char *text)
{
    test_put(root, name, text);
}

static void make(const char *folder)
{
    char path[256];

    (void)ct_format(path, sizeof path, "%s/%s", root, folder);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void assert_text(const char *expected)
{
    char membership[256], text[256];

    (void)ct_format(membership, sizeof membership, "%s/membership", root);
    fork_limit_describe(text, sizeof text, membership, root);
    assert_string_equal(text, expected);
}

static int make_root(void **state)
{
    (void)ct_copy(root, sizeof root, "/tmp/ctrun-limit-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    return test_remove_tree(root);
}

TEST_AROUND(the_full_cgroup_is_named_with_its_limit, make_root, remove_root)
{
    make("job");
    make("job/step");
    put("membership", "4:memory:/\n0::/job/step\n");
    put("job/step/pids.max", "max\n");
    put("job/step/pids.current", "40\n");
    put("job/pids.max", "512\n");
    put("job/pids.current", "512\n");
    assert_text("cgroup /job is at its limit of 512 processes and threads (pids.max)");
    put("job/step/pids.max", "40\n");
    assert_text(
        "cgroup /job/step is at its limit of 40 processes and threads (pids.max)");
}

TEST_AROUND(a_container_sees_its_cgroup_as_the_root, make_root, remove_root)
{
    put("membership", "0::/\n");
    put("pids.max", "64\n");
    put("pids.current", "64\n");
    assert_text("cgroup / is at its limit of 64 processes and threads (pids.max)");
}

TEST_AROUND(version_1_has_a_hierarchy_of_its_own, make_root, remove_root)
{
    make("pids");
    make("pids/job");
    put("membership", "9:pids:/job\n8:memory:/job\n0::/\n");
    put("pids/job/pids.max", "100\n");
    put("pids/job/pids.current", "100\n");
    assert_text("cgroup /job is at its limit of 100 processes and threads (pids.max)");
}

static uid_t user;
static struct rlimit users_limit = {RLIM_INFINITY, RLIM_INFINITY};

uid_t __wrap_getuid(void);
int __wrap_getrlimit(int resource, struct rlimit *limit);

uid_t __wrap_getuid(void)
{
    return user;
}

int __wrap_getrlimit(int resource, struct rlimit *limit)
{
    assert_int_equal(resource, RLIMIT_NPROC);
    *limit = users_limit;
    return 0;
}

static const char unknown[] =
    "it is unknown which limit was reached: ulimit -u, or pids.max of a cgroup";

/* No membership file; then one of a full cgroup without its limit. */
TEST_AROUND(what_cannot_be_read_names_no_limit, make_root, remove_root)
{
    user = 0;
    assert_text(unknown);
    make("job");
    put("membership", "0::/job\n");
    put("job/pids.current", "64\n");
    assert_text(unknown);
}

TEST_AROUND(without_a_full_cgroup_it_is_the_users_limit, make_root, remove_root)
{
    make("job");
    put("membership", "0::/job\n");
    put("job/pids.max", "512\n");
    put("job/pids.current", "511\n");
    user = 1000;
    assert_text(unknown);
    users_limit.rlim_cur = 4096;
    assert_text("this user may have 4096 processes and threads (ulimit -u)");
    put("membership", "");
    assert_text("this user may have 4096 processes and threads (ulimit -u)");
    user = 0; /* the limit does not count for root */
    assert_text(unknown);
}
