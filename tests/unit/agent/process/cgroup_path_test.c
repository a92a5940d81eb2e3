/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups are folders of the test. */
#include "agent/process/cgroup_path.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

static char root[sizeof "/tmp/ctrun-cgroup-XXXXXX"]; /* of one test */

static bool find(struct cgroup_path *out, const char *controller,
                 const char *membership)
{
    char path[64];

    test_put_under(root, membership, "membership");
    (void)ct_format(path, sizeof path, "%s/membership", root);
    return cgroup_path_find(out, controller, path, root);
}

static int make_root(void **state)
{
    (void)ct_copy(root, sizeof root, "/tmp/ctrun-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    return test_remove_tree(root);
}

TEST_AROUND(each_version_has_its_line_and_its_folders, make_root, remove_root)
{
    static const char lines[] =
        "12:pids:/a/b\n9:name=systemd:/x\n4:memory:/\n0::/u/v\n";
    struct cgroup_path cgroup;

    test_put_under(root, "1\n", "pids/a/b/pids.max");
    test_put_under(root, "2\n", "u/v/cpu.max");
    test_put_under(root, "3\n", "memory/memory.limit_in_bytes");
    assert_true(find(&cgroup, "pids", lines) && cgroup.is_v1);
    assert_string_equal(cgroup_path_name(&cgroup), "/a/b");
    assert_true(find(&cgroup, "memory", lines) && cgroup.is_v1);
    assert_string_equal(cgroup_path_name(&cgroup), "/");
    assert_true(find(&cgroup, "cpu", lines) && !cgroup.is_v1);
    assert_string_equal(cgroup_path_name(&cgroup), "/u/v");
    assert_false(find(&cgroup, "cpu", "12:pids:/a/b\n"));
    assert_false(find(&cgroup, "cpu", ""));
    assert_string_equal(cgroup.directory, "");
}

TEST_AROUND(the_way_up_ends_at_the_root, make_root, remove_root)
{
    struct cgroup_path cgroup;

    test_put_under(root, "", "a/b/x");
    assert_true(find(&cgroup, "memory", "0::/a/b\n"));
    assert_true(cgroup_path_go_up(&cgroup));
    assert_string_equal(cgroup_path_name(&cgroup), "/a");
    assert_true(cgroup_path_go_up(&cgroup));
    assert_string_equal(cgroup_path_name(&cgroup), "/");
    assert_string_equal(cgroup.directory, root);
    assert_false(cgroup_path_go_up(&cgroup));
}

/* docker run with version 1, or with --cgroupns=host. */
TEST_AROUND(a_path_on_the_host_means_the_nearest_cgroup_that_a_container_has, make_root,
            remove_root)
{
    struct cgroup_path cgroup;
    uint64_t limit;

    test_put_under(root, "64\n", "memory/memory.limit_in_bytes");
    assert_true(find(&cgroup, "memory", "4:memory:/docker/0123\n0::/\n"));
    assert_string_equal(cgroup_path_name(&cgroup), "/");
    assert_true(cgroup_path_read(&cgroup, "memory.limit_in_bytes", &limit));
    assert_int_equal(limit, 64);
}

/* Version 1 in a container whose host has mounted the whole tree, and a part of it on top. */
TEST_AROUND(of_stacked_mounts_the_last_one_counts, make_root, remove_root)
{
    static const char lines[] = "4:memory:/lab/node1/job/step\n0::/\n";
    struct cgroup_path cgroup;
    char mounts[512];

    test_put_under(root, "1\n", "memory/job/step/memory.limit_in_bytes");
    (void)ct_format(mounts, sizeof mounts,
                    "30 29 0:26 /lab/node1/job %s/pids rw - cgroup cgroup rw,pids\n"
                    "31 29 0:27 / %s/memory rw - cgroup cgroup rw,memory\n"
                    "35 31 0:27 /lab/node1 %s/memory rw - cgroup cgroup rw,memory\n",
                    root, root, root);
    test_put_under(root, mounts, "mountinfo");
    assert_true(find(&cgroup, "memory", lines) && cgroup.is_own);
    assert_string_equal(cgroup_path_name(&cgroup), "/job/step");
    assert_true(find(&cgroup, "memory", "4:memory:/lab/node1\n") && cgroup.is_own);
    assert_string_equal(cgroup_path_name(&cgroup), "/");
    assert_true(find(&cgroup, "memory", "4:memory:/lab/node12/job\n") &&
                !cgroup.is_own);
    test_put_under(root, "", "mountinfo");
    assert_true(find(&cgroup, "memory", lines) && !cgroup.is_own);
    assert_string_equal(cgroup_path_name(&cgroup), "/");
}

/* A container with both versions, and the folders of one. */
TEST_AROUND(a_version_whose_folder_is_not_mounted_does_not_count, make_root,
            remove_root)
{
    struct cgroup_path cgroup;

    test_put_under(root, "", "u/pids.max");
    assert_true(find(&cgroup, "pids", "12:pids:/a/b\n0::/u\n"));
    assert_false(cgroup.is_v1);
    assert_string_equal(cgroup_path_name(&cgroup), "/u");
    assert_false(find(&cgroup, "pids", "12:pids:/a/b\n"));
    assert_string_equal(cgroup.directory, "");
}

TEST_AROUND(nothing_is_read_where_there_is_no_cgroup, make_root, remove_root)
{
    struct cgroup_path cgroup;
    uint64_t number;

    assert_false(find(&cgroup, "pids", ""));
    assert_false(cgroup_path_read(&cgroup, "proc/sys/kernel/pid_max", &number));
    assert_false(cgroup_path_read_key(&cgroup, "proc/stat", "btime ", &number));
}

TEST_AROUND(numbers_are_read_alone_and_behind_their_key, make_root, remove_root)
{
    struct cgroup_path cgroup;
    uint64_t number;

    test_put_under(root, "17\n", "memory.max");
    test_put_under(root, "max\n", "memory.high");
    test_put_under(root, "9223372036854771712\n", "memory.limit_in_bytes");
    test_put_under(root, "low 1\noom 2\noom_kill 3\noom_group_kill x\n",
                   "memory.events");
    assert_true(find(&cgroup, "memory", "0::/\n"));
    assert_true(cgroup_path_read(&cgroup, "memory.max", &number));
    assert_int_equal(number, 17);
    assert_false(cgroup_path_read(&cgroup, "memory.high", &number));
    assert_false(cgroup_path_read(&cgroup, "memory.limit_in_bytes", &number));
    assert_false(cgroup_path_read(&cgroup, "nothing", &number));
    assert_true(cgroup_path_read_key(&cgroup, "memory.events", "oom ", &number));
    assert_int_equal(number, 2);
    assert_true(cgroup_path_read_key(&cgroup, "memory.events", "oom_kill ", &number));
    assert_int_equal(number, 3);
    assert_false(
        cgroup_path_read_key(&cgroup, "memory.events", "oom_group_kill ", &number));
    assert_false(cgroup_path_read_key(&cgroup, "memory.events", "high ", &number));
}
