/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from the files of a dead worker and from the kernel log. */
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include <sys/socket.h>
#include <unistd.h>
#include "agent/loop/blocking_call.h"
#include "agent/postmortem/oom_counter.h"
#include "agent/postmortem/core_file.h"
#include "agent/postmortem/failure_evidence.h"
#include "agent/postmortem/facts.h"
#include "agent/postmortem/kmsg.h"
#include "tests/lib/test.h"
#include "tests/lib/tree.h"
#include "worker_sdk/base/str.h"

TEST(facts_are_lines_and_what_does_not_fit_is_left_out_whole)
{
    struct ct_failure failure = {0};

    facts_add(&failure, CT_FACT_DO, "%d\n\t%s", 1, "\033[31m");
    assert_string_equal(ct_facts_find(&failure.facts, CT_FACT_DO), "1   [31m");
    for (int i = 0; i < 100; i++)
        facts_add(&failure, CT_FACT_SO, "%060d", i);
    assert_int_equal(failure.facts.count, 17);
    assert_int_equal(strlen(ct_facts_text(&failure.facts, 16)), 60);
}

TEST(sizes_are_for_people)
{
    char text[FACTS_SIZE_MAX];

    facts_format_size(text, 64u << 20);
    assert_string_equal(text, "64 MiB");
    facts_format_size(text, (uint64_t)64 << 30);
    assert_string_equal(text, "64.0 GiB");
}

/* ---- Core files ---------------------------------------------------------------------- */

static void assert_core(const struct core_file *core, const char *expected)
{
    char text[320];

    core_file_describe(text, sizeof text, core);
    assert_non_null(strstr(text, expected));
}

static int hung[2]; /* a look into the folder /hung waits for the end of this pipe */

static void wait_if_hung(const char *path)
{
    char byte;

    if (strncmp(path, "/hung/", 6) == 0)
        (void)!read(hung[0], &byte, 1);
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __real_stat(const char *path, struct stat *info);
int __wrap_stat(const char *path, struct stat *info);

int __wrap_access(const char *path, int mode)
{
    wait_if_hung(path);
    return __real_access(path, mode);
}

int __wrap_stat(const char *path, struct stat *info)
{
    wait_if_hung(path);
    return __real_stat(path, info);
}

/* Our folder, while the worker, which had gone to another one, could dump its core. */
TEST(a_folder_that_does_not_answer_is_not_waited_for)
{
    const struct core_file core = {.pattern = "core",
                                   .is_dumped = true,
                                   .pid = 812,
                                   .signal = SIGSEGV,
                                   .program = "train",
                                   .host = "node1",
                                   .directory = "/hung"};

    (void)state;
    assert_int_equal(pipe(hung), 0);
    (void)alarm(60); /* ends a test that waits */
    assert_core(&core, "named by core_pattern core");
    close(hung[1]);
    blocking_call_find_files(NULL, 0, 60000); /* waits for the thread's end */
    (void)alarm(0);
    close(hung[0]);
}

TEST(a_core_file_is_found_or_its_absence_explained)
{
    char directory[] = "/tmp/ctrun-core-XXXXXX";
    char path[128];
    struct core_file core = {.pattern = "core",
                             .pid = 812,
                             .signal = SIGSEGV,
                             .program = "/opt/bin/train-with-a-long-name",
                             .host = "node1",
                             .directory = directory};

    assert_core(&core, "none (ulimit -Hc 0");
    core.hard = UINT64_MAX;
    assert_core(&core, "none (ulimit -c 0; --core turns it on)");
    core.soft = UINT64_MAX;
    assert_core(&core, "although the limit allows one");
    core.is_dumped = true;
    assert_core(&core, "named by core_pattern core");
    core.pattern = "|/lib/systemd/systemd-coredump %P %u";
    assert_core(&core, "coredumpctl info 812");
    core.pattern = "|/usr/share/apport/apport -p%p";
    assert_core(&core, "handed to /usr/share/apport/apport, process 812");
    assert_non_null(mkdtemp(directory));
    core.pattern = "c.%e.%s.%h.%%";
    core.has_pid = true;
    (void)ct_format(path, sizeof path, "%s/c.train-with-a-lo.11.node1.%%.812",
                    directory);
    fclose(fopen(path, "we"));
    assert_core(&core, path);
    core.pattern = "c.%t"; /* known only to the kernel */
    assert_core(&core, "named by core_pattern c.%t");
    assert_int_equal(test_remove_tree(directory), 0);
}

/* ---- The kernel log, the limit ------------------------------------------------------- */

TEST(the_kernels_words_must_be_of_that_process_and_that_time)
{
    static const char record[] =
        "3,1040,5000000,-;Memory cgroup out of memory: Killed process 812 (python3) "
        "total-vm:1kB";
    const char *text;

    assert_true(kmsg_is_kill(record, 812, 4000, &text));
    assert_int_equal(strncmp(text, "Memory cgroup out of memory: ", 29), 0);
    assert_false(kmsg_is_kill(record, 81, 4000, &text));
    assert_false(kmsg_is_kill(record, 8120, 4000, &text));
    assert_false(kmsg_is_kill(record, 812, 9000, &text)); /* of an earlier process */
    assert_false(kmsg_is_kill("3,1;Killed process 812 (x)", 812, 0, &text));
    assert_false(kmsg_is_kill("", 812, 0, &text));
    assert_true(kmsg_is_kill(record, 0, 4000, &text)); /* of any process */
    assert_false(kmsg_is_kill("3,1040,5000000,-;usb 1-1: new", 0, 4000, &text));
}

static struct {
    bool has_it, has_other;
} kernel_log;

bool __wrap_kmsg_find_kill(char *dst, size_t size, pid_t pid, uint64_t since_ms,
                           bool *has_other);

bool __wrap_kmsg_find_kill(char *dst, size_t size, pid_t pid, uint64_t since_ms,
                           bool *has_other)
{
    (void)pid;
    (void)since_ms;
    (void)ct_copy(dst, size, "");
    *has_other = kernel_log.has_other;
    return kernel_log.has_it;
}

static bool is_oom(uint64_t counted_ms, bool has_it, bool has_other)
{
    const struct failure_evidence evidence = {.oom_proof = "oom_kill 0 -> 1 in /job",
                                              .oom_seen_ms = counted_ms,
                                              .seen_ms = 200000};

    kernel_log.has_it = has_it;
    kernel_log.has_other = has_other;
    return failure_evidence_is_oom(&evidence, 812);
}

TEST(a_kill_of_another_process_is_no_proof)
{
    const struct failure_evidence none = {.oom_proof = ""};

    assert_false(failure_evidence_is_oom(&none, 812));
    assert_true(is_oom(195000, false, false)); /* the log cannot be read */
    assert_true(is_oom(195000, true, true));
    assert_false(is_oom(195000, false, true));
    assert_true(is_oom(200001, false, true));   /* its record may come in a moment */
    assert_false(is_oom(100000, false, false)); /* long ago */
    assert_true(is_oom(100000, true, false));   /* and it took so long to end */
}

static void make_folder(const char *root, const char *name)
{
    char path[256];

    (void)ct_format(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void assert_limit(const char *root, const char *expected)
{
    struct oom_counter cgroup;
    char membership[256];
    char text[320] = "";

    (void)ct_format(membership, sizeof membership, "%s/membership", root);
    oom_counter_init(&cgroup, membership, root);
    assert_int_equal(oom_counter_describe_limit(&cgroup, text, sizeof text),
                     expected != NULL);
    if (expected)
        assert_string_equal(text, expected);
}

TEST(the_tightest_limit_up_to_the_root_counts)
{
    char root[] = "/tmp/ctrun-limit-XXXXXX";

    assert_non_null(mkdtemp(root));
    test_put(root, "membership", "0::/job/step\n");
    make_folder(root, "job");
    make_folder(root, "job/step");
    test_put(root, "job/step/memory.events", "max 0\noom_kill 0\n");
    test_put(root, "job/step/memory.max", "max\n");
    assert_limit(root, NULL);
    test_put(root, "job/memory.max", "67108864\n");
    test_put(root, "job/memory.peak", "67100000\n");
    test_put(root, "job/memory.events", "low 0\nmax 17\noom_kill 1\n");
    assert_limit(root, "64 MiB of cgroup /job, used 63 MiB, hit 17 times");
    test_put(root, "job/step/memory.max", "33554432\n");
    test_put(root, "job/step/memory.current", "33554432\n");
    assert_limit(root, "32 MiB of cgroup /job/step, used 32 MiB, hit 0 times");
    assert_int_equal(test_remove_tree(root), 0);
}

TEST(version_1_counts_in_files_of_other_names)
{
    char root[] = "/tmp/ctrun-limit-XXXXXX";

    assert_non_null(mkdtemp(root));
    test_put(root, "membership", "4:memory:/job\n0::/\n");
    make_folder(root, "memory");
    make_folder(root, "memory/job");
    test_put(root, "memory/job/memory.oom_control", "oom_kill 0\n");
    test_put(root, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    test_put(root, "memory/job/memory.limit_in_bytes", "67108864\n");
    test_put(root, "memory/job/memory.max_usage_in_bytes", "67108864\n");
    test_put(root, "memory/job/memory.failcnt", "1234\n");
    assert_limit(root, "64 MiB of cgroup /job, used 64 MiB, hit 1234 times");
    assert_int_equal(test_remove_tree(root), 0);
}

static void assert_because(const struct oom_counter *cgroup, const char *words)
{
    const struct memory_curve memory = {0};
    const struct failure_evidence evidence = {.status = SIGKILL,
                                              .oom_proof = "",
                                              .cgroup = cgroup,
                                              .memory = &memory,
                                              .larger = "",
                                              .last_lines = "",
                                              .crash_record = -1};
    struct ct_failure failure = {.cause = CT_CAUSE_SIGNAL, .code = SIGKILL};
    const char *because;

    failure_evidence_add(&failure, &evidence);
    assert_non_null(because = ct_facts_find(&failure.facts, CT_FACT_BECAUSE));
    if (strncmp(because, words, strlen(words)) != 0)
        fail_msg("%s", because);
}

TEST(only_the_count_of_the_own_cgroup_excludes_the_oom_killer)
{
    struct oom_counter cgroup = {.has_count = true,
                                 .cgroup = {.directory = "/x", .is_own = true}};

    assert_because(&cgroup, "not the OOM killer (oom_kill of cgroup /x has not grown)");
    cgroup.cgroup.is_own = false;
    assert_because(&cgroup,
                   "it is unknown whether it was the OOM killer (the worker's own "
                   "cgroup is not visible here, only /x above it)");
    cgroup.has_count = false;
    assert_because(&cgroup, "it is unknown whether it was the OOM killer (no memory "
                            "cgroup is visible)");
}

static bool is_xid(void *context, const char *line)
{
    (void)context;
    return strstr(line, "Xid") != NULL;
}

TEST(the_kernels_words_of_that_time_are_found)
{
    static const char *const records[] = {
        "6,1,1000000,-;NVRM: Xid (PCI:0000:3b:00): 31, long before",
        "6,2,9000000,-;usb 1-1: new device",
        ("6,3,9000001,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n "
         "X=1"),
        "6,4,9000002,-;NVRM: Xid (PCI:0000:3b:00): 48, later",
    };
    char line[160];
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        assert_int_equal(send(fds[0], records[i], strlen(records[i]), 0),
                         (ssize_t)strlen(records[i]));
    close(fds[0]);
    assert_true(kmsg_find_line(fds[1], line, sizeof line, 8000, is_xid, NULL));
    assert_string_equal(line,
                        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
    assert_true(kmsg_find_line(fds[1], line, sizeof line, 8000, is_xid, NULL));
    assert_false(
        kmsg_find_line(fds[1], line, sizeof line, 8000, is_xid, NULL)); /* the end */
    close(fds[1]);
}

static int owns_3b(char *const *env, const char *pci)
{
    if (!env)
        return -ENODEV;
    return strcmp(pci, "0000:3b:00") == 0;
}

/* What the log with these two lines adds to the failure of rank 3. */
static const struct ct_failure *find_in_log(const char *first, const char *second,
                                            const struct failure_evidence *evidence)
{
    static struct ct_failure failure;
    int fds[2];

    failure = (struct ct_failure){.rank = 3};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    assert_true(send(fds[0], first, strlen(first), 0) > 0);
    assert_true(send(fds[0], second, strlen(second), 0) > 0);
    close(fds[0]);
    failure_evidence_add_kernel(&failure, evidence, fds[1]);
    close(fds[1]);
    return &failure;
}

TEST(an_xid_of_a_gpu_that_the_rank_could_not_use_is_no_evidence)
{
    static const char other[] =
        "6,1,9000000,-;NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen "
        "off the bus.";
    static const char own[] =
        "6,2,9000001,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, later";
    static const char none[] = "6,3,9000002,-;usb 1-1: new device";
    char *env[] = {NULL};
    const struct failure_evidence known = {.env = env, .may_use_gpu = owns_3b};
    const struct failure_evidence unknown = {.may_use_gpu = owns_3b};
    const struct failure_evidence nobody = {0};
    const struct ct_failure *failure = find_in_log(other, own, &known);

    assert_string_equal(ct_facts_find(&failure->facts, CT_FACT_HARDWARE),
                        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, later");
    failure = find_in_log(other, none, &known);
    assert_null(ct_facts_find(&failure->facts, CT_FACT_HARDWARE));
    assert_null(ct_facts_find(&failure->facts, CT_FACT_BECAUSE));
    failure = find_in_log(other, none, &unknown);
    assert_null(ct_facts_find(&failure->facts, CT_FACT_HARDWARE));
    assert_string_equal(
        ct_facts_find(&failure->facts, CT_FACT_BECAUSE),
        "perhaps \"NVRM: Xid (PCI:0000:86:00): 79, GPU has fallen off the bus.\" in "
        "the "
        "kernel's log; it is not known whether rank 3 could use that GPU");
    failure = find_in_log(other, none, &nobody);
    assert_null(ct_facts_find(&failure->facts, CT_FACT_HARDWARE));
}
