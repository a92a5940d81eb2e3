/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups are folders of the test. */
#include "launcher/hardware/cpu_quota.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

static char root[sizeof "/tmp/ctrun-quota-XXXXXX"]; /* of one test */

static int find(const char *membership)
{
    char path[64];

    test_put_under(root, membership, "membership");
    (void)ct_format(path, sizeof path, "%s/membership", root);
    return cpu_quota_find(path, root);
}

static int make_root(void **state)
{
    (void)ct_copy(root, sizeof root, "/tmp/ctrun-quota-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    return test_remove_tree(root);
}

TEST_AROUND(the_smallest_limit_above_counts, make_root, remove_root)
{
    test_put_under(root, "max 100000\n", "pod/job/step/cpu.max");
    test_put_under(root, "150000 100000\n", "pod/job/cpu.max");
    test_put_under(root, "800000 100000\n", "pod/cpu.max");
    assert_int_equal(find("0::/pod/job/step\n"), 2); /* 1.5, rounded up */
    assert_int_equal(find("0::/pod\n"), 8);
    test_put_under(root, "max 100000\n", "free/cpu.max");
    assert_int_equal(find("0::/free\n"), 0);
    test_put_under(root, "1 100000\n", "free/cpu.max");
    assert_int_equal(find("0::/free\n"), 1);
}

TEST_AROUND(version_1_has_two_files, make_root, remove_root)
{
    test_put_under(root, "400000\n", "cpu,cpuacct/a/cpu.cfs_quota_us");
    test_put_under(root, "100000\n", "cpu,cpuacct/a/cpu.cfs_period_us");
    test_put_under(root, "-1\n", "cpu,cpuacct/a/b/cpu.cfs_quota_us");
    test_put_under(root, "100000\n", "cpu,cpuacct/a/b/cpu.cfs_period_us");
    assert_int_equal(find("3:cpu,cpuacct:/a/b\n"), 4);
}

TEST_AROUND(what_cannot_be_read_is_no_limit, make_root, remove_root)
{
    static const char *const texts[] = {
        "",           "max",   "100000",      "100000 0\n",
        "0 100000\n", "x y\n", "-1 100000\n", "4611686018427387903 1\n"};

    assert_int_equal(find(""), 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        test_put_under(root, texts[i], "a/cpu.max");
        assert_int_equal(find("0::/a\n"), 0);
    }
}
