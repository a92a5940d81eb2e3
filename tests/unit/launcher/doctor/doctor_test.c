/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "launcher/doctor/doctor_net.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

TEST(a_name_that_is_loopback_is_a_trap)
{
    struct doctor doctor = {0};
    struct ct_addr addr;

    assert_int_equal(ct_addr_parse("127.0.1.1", 0, &addr), 0);
    doctor_check_name(&doctor, "node1", &addr, 1, 3);
    assert_int_equal(doctor.list[0].level, DOCTOR_WARN);
    assert_string_equal(doctor.list[0].value, "node1 is 127.0.1.1");
    assert_int_equal(ct_addr_parse("10.0.0.1", 0, &addr), 0);
    doctor_check_name(&doctor, "node1", &addr, 1, 5000);
    assert_int_equal(doctor.list[2].level, DOCTOR_OK);
    assert_int_equal(doctor.list[3].level, DOCTOR_WARN); /* 5 s is slow */
}

TEST(a_small_shm_warns_and_none_fails)
{
    struct doctor doctor = {0};

    doctor_check_shm(&doctor, 64 << 20, 64 << 20);
    assert_int_equal(doctor.list[0].level, DOCTOR_WARN);
    assert_false(doctor_has_failed(&doctor));
    doctor_check_shm(&doctor, 0, 0);
    assert_true(doctor_has_failed(&doctor));
}

/* Checks the newest finding. It has a fix unless it is OK. */
static void assert_newest(const struct doctor *doctor, const char *what,
                          enum doctor_level level, const char *fix)
{
    const struct doctor_finding *finding = &doctor->list[doctor->count - 1];

    assert_string_equal(finding->what, what);
    assert_int_equal(finding->level, level);
    if (level == DOCTOR_OK)
        assert_string_equal(finding->fix, "");
    else
        assert_non_null(strstr(finding->fix, fix));
}

TEST(what_is_wrong_with_a_machine_comes_with_its_fix)
{
    struct doctor doctor = {0};

    doctor_check_port(&doctor, 29400, NULL);
    assert_newest(&doctor, "port 29400", DOCTOR_OK, "");
    doctor_check_port(&doctor, 29400, "pid 4242 (python3)");
    assert_newest(&doctor, "port 29400", DOCTOR_WARN, "--rdzv-endpoint");
    assert_non_null(strstr(doctor.list[1].value, "pid 4242 (python3)"));
    doctor_check_cpus(&doctor, 8, 8);
    assert_newest(&doctor, "CPUs", DOCTOR_OK, "");
    doctor_check_cpus(&doctor, 2, 8);
    assert_newest(&doctor, "CPUs", DOCTOR_WARN, "--cpus-per-task");
    doctor_check_clock(&doctor, "tsc", true);
    assert_newest(&doctor, "clock", DOCTOR_OK, "");
    doctor_check_clock(&doctor, "hpet", true);
    assert_newest(&doctor, "clock", DOCTOR_WARN, "dmesg");
    doctor_check_memory(&doctor, UINT64_MAX, 1);
    assert_newest(&doctor, "cgroup memory", DOCTOR_OK, "");
    doctor_check_memory(&doctor, 100, 89);
    assert_newest(&doctor, "cgroup memory", DOCTOR_OK, "");
    doctor_check_memory(&doctor, 100, 95);
    assert_newest(&doctor, "cgroup memory", DOCTOR_WARN, "--mem");
}

/* As under Slurm with cgroup v1: the limit is the job's, above the step's. */
TEST(the_limit_of_a_cgroup_above_this_process_counts_in_version_1_too)
{
    char root[] = "/tmp/ctrun-doctor-XXXXXX";
    struct doctor doctor = {0};
    char path[256];

    assert_non_null(mkdtemp(root));
    for (const char *const *at =
             (const char *const[]){"memory", "memory/job", "memory/job/step", NULL};
         *at; at++) {
        (void)ct_format(path, sizeof path, "%s/%s", root, *at);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    test_put(root, "membership", "5:cpuset:/job\n4:memory:/job/step\n0::/\n");
    test_put(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    test_put(root, "memory/job/memory.limit_in_bytes", "1073741824\n");
    test_put(root, "memory/job/memory.usage_in_bytes", "1000000000\n");
    test_put(root, "memory/job/step/memory.limit_in_bytes", "9223372036854771712\n");
    (void)ct_format(path, sizeof path, "%s/membership", root);
    doctor_memory(&doctor, path, root);
    assert_newest(&doctor, "cgroup memory", DOCTOR_WARN, "--mem");
    assert_string_equal(doctor.list[0].value, "1.0 GiB, 953.7 MiB used");
    assert_int_equal(test_remove_tree(root), 0);
}

TEST(limits_that_workers_would_hit_come_with_their_fix)
{
    struct doctor_limits limits = {.nofile_soft = 65536,
                                   .nofile_hard = 65536,
                                   .memlock_soft = 65536,
                                   .workers = 8};
    struct doctor doctor = {0};

    doctor_check_limits(&doctor, &limits);
    for (size_t i = 0; i < doctor.count; i++)
        /* There is no device for which memory must be locked. */
        assert_int_equal(doctor.list[i].level, DOCTOR_OK);
    doctor.count = 0;
    limits.nofile_soft = limits.nofile_hard = 1024;
    limits.has_rdma = true;
    doctor_check_limits(&doctor, &limits);
    assert_int_equal(doctor.list[0].level, DOCTOR_WARN);
    assert_non_null(strstr(doctor.list[0].fix, "ulimit -n 1536, after raising"));
    assert_int_equal(doctor.list[1].level, DOCTOR_WARN);
    assert_non_null(strstr(doctor.list[1].fix, "memlock unlimited"));
}

static const struct doctor_node three[] = {
    {.host = "a",
     .version = "1",
     .nccl = "2.28.3",
     .addrs = {"10.0.0.1"},
     .addr_count = 1,
     .port = 5,
     .nonce = 7},
    {.host = "b",
     .version = "1",
     .nccl = "2.28.3",
     .addrs = {"10.0.0.2", "172.17.0.1"},
     .addr_count = 2,
     .clock_ms = 999,
     .port = 5},
    {.host = "c",
     .version = "2",
     .nccl = "2.27.0",
     .addrs = {"10.0.0.3"},
     .addr_count = 1,
     .clock_ms = -70000,
     .port = 5},
};

static const struct doctor_finding *find_with(const struct doctor *doctor,
                                              const char *what, const char *part)
{
    for (size_t i = 0; i < doctor->count; i++)
        if (strcmp(doctor->list[i].what, what) == 0 &&
            strstr(doctor->list[i].value, part))
            return &doctor->list[i];
    fail_msg("no finding %s with %s", what, part);
    return NULL;
}

TEST(nodes_that_differ_are_named)
{
    struct doctor doctor = {0};

    doctor_check_nodes(&doctor, three, 2);
    assert_int_equal(find_with(&doctor, "clocks", "999 ms")->level, DOCTOR_OK);
    assert_int_equal(find_with(&doctor, "NCCL", "2.28.3 on all")->level, DOCTOR_OK);
    doctor.count = 0;
    doctor_check_nodes(&doctor, three, 3);
    assert_int_equal(find_with(&doctor, "clocks", "b is 71.0 s ahead of c")->level,
                     DOCTOR_FAIL);
    assert_int_equal(find_with(&doctor, "NCCL", "2.27.0 on c")->level, DOCTOR_FAIL);
    assert_int_equal(find_with(&doctor, "ctrun", "2 on c")->level, DOCTOR_WARN);
}

TEST(an_address_that_is_not_reached_is_named_with_its_fix)
{
    static const struct doctor_probe probes[] = {
        {0, 1, 0, 0, 3},      {0, 1, 1, DOCTOR_SOMEBODY_ELSE, 1},
        {0, 2, 0, 0, 1},      {1, 0, 0, 0, 1},
        {1, 2, 0, 110, 3000}, {2, 0, 0, 0, 1},
        {2, 1, 0, 0, 1},      {2, 1, 1, 0, 1},
    };
    struct doctor doctor = {0};
    const struct doctor_finding *finding;

    doctor_check_probes(&doctor, three, 3, probes, sizeof probes / sizeof *probes);
    finding = find_with(&doctor, "reachability",
                        "b -> c: 10.0.0.3: Connection timed out");
    assert_int_equal(finding->level, DOCTOR_FAIL);
    assert_non_null(strstr(finding->fix, "--port-range"));
    finding = find_with(&doctor, "reachability", "a -> b: 172.17.0.1: another machine");
    assert_int_equal(finding->level, DOCTOR_WARN);
    assert_non_null(find_with(&doctor, "reachability", "5 of 6 network paths"));
}

TEST(what_many_nodes_suffer_from_is_told_once_with_their_names)
{
    struct doctor own = {0};
    struct doctor all = {0};
    char text[4096];

    (void)doctor_add(&own, DOCTOR_OK, "clock", "fine");
    doctor_set_fix(doctor_add(&own, DOCTOR_WARN, "open files", "1024"), "ulimit -n");
    doctor_set_fix(doctor_add(&own, DOCTOR_FAIL, "/dev/shm", "none"), "mount it");
    doctor_findings_format(text, sizeof text, &own);
    doctor_add_findings(&all, "a", text);
    doctor_add_findings(&all, "b", text);
    doctor_add_findings(&all, "c", "");
    doctor_add_findings(&all, "d", "9\tx\ty\tz\n");
    doctor_add_findings(&all, "e", "nonsense");
    assert_int_equal(all.count, 2);
    assert_string_equal(find_with(&all, "open files", "1024")->value, "b, a: 1024");
    assert_int_equal(find_with(&all, "/dev/shm", "b, a: none")->level, DOCTOR_FAIL);
    assert_string_equal(all.list[1].fix, "mount it");
    doctor_add_findings(&all, "f", "2\tev\033il\t\033]0;x\007\t\x9b\n");
    assert_string_equal(all.list[2].what, "ev?il");
    assert_string_equal(all.list[2].value, "f: ?]0;x?");
    assert_string_equal(all.list[2].fix, "?");
    /* What does not fit is left out as a whole. */
    doctor_findings_format(text, 40, &own);
    assert_string_equal(text, "1\topen files\t1024\tulimit -n\n");
}

TEST(a_node_reads_what_it_wrote_and_nothing_else)
{
    char text[DOCTOR_TEXT_MAX];
    struct doctor_node node;

    doctor_node_format(text, &three[1]);
    assert_int_equal(doctor_node_parse(&node, text), 0);
    assert_string_equal(node.host, "b");
    assert_string_equal(node.nccl, "2.28.3");
    assert_string_equal(node.driver, "");
    assert_int_equal(node.clock_ms, 999);
    assert_int_equal(node.addr_count, 2);
    assert_string_equal(node.addrs[1], "172.17.0.1");
    for (size_t i = 0; i < 7; i++) { /* only the last field may be missing */
        char *tab = strrchr(text, '\t');

        *tab = '\0';
        assert_int_equal(doctor_node_parse(&node, text), i == 0 ? 0 : -EBADMSG);
    }
}
