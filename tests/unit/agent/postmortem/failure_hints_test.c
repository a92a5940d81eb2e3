/* SPDX-License-Identifier: Apache-2.0 */
/* Hints for a failure: an example for each row of the table, in its order. */
#include <errno.h>
#include <signal.h>

#include "agent/postmortem/failure_hints.h"
#include "tests/lib/facts_text.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

struct example {
    uint8_t cause;
    int32_t code;
    const char *text; /* the program's output */
    const char *likely;
};

#define EXIT   CT_CAUSE_EXIT
#define SIGNAL CT_CAUSE_SIGNAL
#define EXEC   CT_CAUSE_EXEC

static const struct example examples[] = {
    {EXIT, 127,
     "./p: error while loading shared libraries: libnccl.so.2: cannot open shared "
     "object "
     "file: No such file or directory",
     "shared library libnccl.so.2 is missing"},
    {EXIT, 1,
     "ImportError: libcudnn.so.9: cannot open shared object file: No such file",
     "shared library libcudnn.so.9 is missing"},
    {EXIT, 1, "p: /lib/libc.so.6: version `GLIBC_2.38' not found (required by p)",
     "needs GLIBC_2.38"},
    {EXIT, 1, "Traceback ...\nModuleNotFoundError: No module named 'torchx.y'\n",
     "Python finds no module torchx.y"},
    {EXIT, 1, "ImportError: cannot import name 'dist' from 'torch' (/x/__init__.py)",
     "a Python module has no dist"},
    {EXIT, 2, "/usr/bin/python3: can't open file '/a b/t.py': [Errno 2] No such file",
     "the script /a b/t.py on this node"},
    {EXIT, 127, "/usr/bin/env: \u2018bash\\r\u2019: No such file or directory",
     "ends in CR LF"},
    {EXIT, 127, "env: 'bash\\r': No such file or directory", "ends in CR LF"},
    {EXIT, 1, "SyntaxError: invalid syntax", "cannot parse the code (invalid syntax)"},
    {EXIT, 2, "t.py: error: unrecognized arguments: --local-rank=0 --batch 3\n",
     "no option --local-rank, which ctrun-launch"},
    {EXIT, 2, "t.py: error: the following arguments are required: --local_rank\n",
     "let it accept --local-rank as well"},
    {EXIT, 2, "usage: t.py [-h]\nt.py: error: unrecognized arguments: --batch 3\n",
     "no such argument: --batch 3"},
    {EXIT, 1, "torch.OutOfMemoryError: CUDA out of memory. Tried",
     "GPU memory is full"},
    {EXIT, 1, "RuntimeError: CUDA error: out of memory", "GPU memory is full"},
    {EXIT, 1, "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
     "could not allocate GPU memory"},
    {EXIT, 1, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling",
     "could not allocate GPU memory"},
    {EXIT, 1, "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.",
     "PCIe"},
    {EXIT, 1, "NVRM: Xid (PCI:0000:3b:00): 95, pid=8, Uncontained ECC error", "Xid 95"},
    {EXIT, 1, "NVRM: Xid (PCI:0000:3b:00): 94, pid=8, Contained ECC error", "Xid 94"},
    {EXIT, 1, "NVRM: Xid (PCI:0000:3b:00): 48, pid=8, DBE (Double Bit ECC)", "Xid 48"},
    {EXIT, 1,
     "NVRM: Xid (PCI:0000:3b:00): 119, Timeout after 6s of waiting for RPC from GSP0!",
     "Xid 119"},
    {EXIT, 1, "NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception",
     "a GPU: Xid (PCI:0000:3b:00): 13, Graphics"},
    {EXIT, 1, "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
     "could not start"},
    {EXIT, 1, "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
     "kernel of cuDNN"},
    {EXIT, 1, "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
     "forked after its parent"},
    {SIGNAL, SIGABRT, "CUDA error: unspecified launch failure", "a kernel failed"},
    {EXIT, 1, "RuntimeError: CUDA error: invalid device ordinal", "cannot use"},
    {EXIT, 1, "CUDA error: no kernel image is available for execution on the device",
     "not built for this GPU"},
    {EXIT, 1, "CUDA driver version is insufficient for CUDA runtime version",
     "driver is older"},
    {EXIT, 1, "CUDA error: uncorrectable ECC error encountered",
     "errors that ECC cannot correct"},
    {SIGNAL, SIGABRT, "CUDA error: device-side assert triggered", "out of range"},
    {SIGNAL, SIGABRT, "CUDA error: an illegal memory access was encountered",
     "an address where it has no memory"},
    {EXIT, 1, "RuntimeError: Found no NVIDIA driver on your system.",
     "no NVIDIA driver"},
    {EXIT, 1, "RuntimeError: No CUDA GPUs are available", "sees no GPU"},
    {EXIT, 1, "RuntimeError: no CUDA-capable device is detected", "sees no GPU"},
    {EXIT, 1, "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
     "accepts no further program"},
    {EXIT, 1,
     "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x "
     "(size 9637888), error: No space left on device (28)",
     "no room left"},
    {EXIT, 1,
     "RuntimeError: unexpected bus error encountered in worker. This might be caused "
     "by "
     "insufficient shared memory (shm).",
     "no room for the data loader"},
    {EXIT, 1, "OSError: [Errno 28] No space left on device", "file system is full"},
    {EXIT, 1, "OSError: [Errno 122] Disk quota exceeded", "quota"},
    {EXIT, 1, "OSError: [Errno 24] Too many open files", "ulimit -n"},
    {EXIT, 1, "RuntimeError: can't start new thread", "processes and threads"},
    {EXIT, 2, "sh: 1: Cannot fork", "processes and threads"},
    {EXIT, 254, "bash: fork: retry: Resource temporarily unavailable",
     "processes and threads"},
    {EXIT, 1, "OSError: [Errno 12] Cannot allocate memory", "refused memory"},
    {EXIT, 1, "RuntimeError: std::bad_alloc", "refused memory"},
    {EXIT, 1, "OSError: [Errno 116] Stale file handle", "network file system"},
    {EXIT, 1,
     "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already "
     "in "
     "use).",
     "a port is taken"},
    {EXIT, 1,
     "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device",
     "two ranks use the same GPU"},
    {EXIT, 1, "NCCL WARN Bootstrap : no socket interface found",
     "no network interface"},
    {EXIT, 1, "NCCL WARN Call to ibv_reg_mr failed", "limit of locked memory"},
    {EXIT, 1, "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
     "wrong GID"},
    {EXIT, 1, "NET/IB : mlx5_0:1 Got async event : port error", "lost its link"},
    {EXIT, 1,
     "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<4> with error 12, opcode 0",
     "did not answer"},
    {EXIT, 1,
     "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<4> with status=12 opcode=0",
     "did not answer"},
    {EXIT, 1, "NCCL WARN Message truncated : received 1024 bytes instead of 256",
     "different sizes"},
    {SIGNAL, SIGABRT,
     "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
     "another rank did not make the same call"},
    {EXIT, 1,
     "unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete",
     "in a collective of Gloo"},
    {EXIT, 1,
     "unbound_buffer.cc:78] Timed out waiting 3000ms for send operation to complete",
     "in a collective of Gloo"},
    {EXIT, 1, "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /0",
     "a key of the worker store"},
    {EXIT, 1, "Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
     "init_process_group()"},
    {EXIT, 1,
     "torch.distributed.DistNetworkError: The client socket has timed out after "
     "60000ms "
     "while trying to connect to (node1, 29500).",
     "did not reach the worker store"},
    {EXIT, 1, "ncclRemoteError: A call failed possibly due to a network error",
     "a consequence"},
    {EXIT, 1, "ncclSystemError: System call (e.g. socket, malloc) failed",
     "a system call of NCCL"},
    {EXIT, 1, "RuntimeError: DataLoader worker (pid(s) 81, 82) exited unexpectedly",
     "data loader died"},
    {EXIT, 1, "[../gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:1",
     "the connection of Gloo"},
    {EXIT, 1, "recv: Connection reset by peer", "the other side closed a connection"},
    {SIGNAL, SIGABRT, "terminate called after throwing an instance of 'c10::Error'\n",
     "C++ exception: c10::Error"},
    {SIGNAL, SIGABRT, "t: t.c:3: main: Assertion `n > 0' failed.",
     "an assertion failed: n > 0"},
    {SIGNAL, SIGABRT, "*** stack smashing detected ***: terminated", "beyond its end"},
    {SIGNAL, SIGABRT, "double free or corruption (out)", "heap was damaged"},
    {SIGNAL, SIGABRT, "free(): invalid pointer", "heap was damaged"},
    {SIGNAL, SIGABRT, "malloc(): corrupted top size", "heap was damaged"},
    {SIGNAL, SIGSEGV, "", "a wrong pointer"},
    {SIGNAL, SIGABRT, "", "called abort()"},
    {SIGNAL, SIGBUS, "", "a mapped file became shorter"},
    {SIGNAL, SIGFPE, "", "division by zero"},
    {SIGNAL, SIGILL, "", "this processor does not have"},
    {SIGNAL, SIGTRAP, "", "a breakpoint"},
    {SIGNAL, SIGSYS, "", "seccomp"},
    {SIGNAL, SIGXCPU, "", "ulimit -t"},
    {SIGNAL, SIGXFSZ, "", "ulimit -f"},
    {SIGNAL, SIGPIPE, "", "no process reads"},
    {SIGNAL, SIGTERM, "", "a process, perhaps itself, asked it to end"},
    {SIGNAL, SIGINT, "", "a process, perhaps itself, interrupted it"},
    {SIGNAL, SIGHUP, "", "terminal or session has ended"},
    {SIGNAL, SIGUSR1, "", "does not handle"},
    {SIGNAL, SIGUSR2, "", "does not handle"},
    {SIGNAL, SIGALRM, "", "a timer of its own"},
    {EXIT, 2, "usage: train.py --data FOLDER", "refused arguments (argparse"},
    {EXIT, 124, "", "timeout(1)"},
    {EXIT, 126, "sh: 1: ./train: Permission denied", "may not execute it"},
    {EXIT, 127, "sh: 1: trian: not found", "did not find the command"},
    {EXIT, 134, "Aborted", "SIGABRT (128 + 6)"},
    {EXIT, 135, "Bus error", "SIGBUS (128 + 7)"},
    {EXIT, 137, "Killed", "128 + SIGKILL"},
    {EXIT, 139, "Segmentation fault", "SIGSEGV (128 + 11)"},
    {EXIT, 143, "Terminated", "128 + SIGTERM"},
    {EXIT, 255, "", "exit(-1)"},
    {EXEC, ENOENT, "trian: no such file or directory", "not on this node"},
    {EXEC, EACCES, "./train: permission denied", "may not be executed"},
    {EXEC, ENOEXEC, "./train: exec format error", "another architecture"},
    {EXEC, E2BIG, "", "too long together"},
    {EXEC, ETXTBSY, "", "is being written"},
};

static struct ct_failure fail_as(const struct example *example)
{
    struct ct_failure failure = {.cause = example->cause, .code = example->code};

    (void)ct_copy(failure.text, sizeof failure.text, example->text);
    return failure;
}

TEST(each_row_has_an_example_that_finds_it)
{
    const int count = (int)(sizeof examples / sizeof *examples);

    assert_int_equal(count, failure_hints_count());
    for (int i = 0; i < count; i++) {
        struct ct_failure failure = fail_as(&examples[i]);
        bool is_name;

        if (failure_hints_find(&failure, "") != i)
            fail_msg("\"%s\", code %d is row %d, not %d", examples[i].text,
                     examples[i].code, failure_hints_find(&failure, ""), i);
        failure_hints_add(&failure, false, "");
        if (!strstr(facts_text(&failure.facts), examples[i].likely))
            fail_msg("\"%s\" is not in\n%s", examples[i].likely,
                     facts_text(&failure.facts));
        /* The report advises to check the name and the permissions where no other step is known. */
        is_name = examples[i].cause == EXEC &&
                  (examples[i].code == ENOENT || examples[i].code == EACCES);
        if (is_name == !!ct_facts_find(&failure.facts, CT_FACT_DO))
            fail_msg("%s next step in\n%s", is_name ? "a" : "no",
                     facts_text(&failure.facts));
        assert_true(failure.facts.used < 400); /* leaves room for other facts */
    }
}

TEST(words_in_front_of_the_path_of_a_library_are_not_its_name)
{
    const struct example example = {
        EXIT, 1,
        "ImportError: ctrun: cannot load libctrun: /a: b/libctrun.so.0: cannot open "
        "shared object file: No such file",
        NULL};
    struct ct_failure failure = fail_as(&example);

    failure_hints_add(&failure, false, "");
    assert_non_null(strstr(facts_text(&failure.facts),
                           "shared library /a: b/libctrun.so.0 is missing"));
}

TEST(what_is_not_in_the_table_is_left_alone)
{
    static const struct example others[] = {
        {EXIT, 1, "", NULL},
        {EXIT, 1, "ValueError: boom", NULL},
        {EXIT, 1, "ImportError: ", NULL},
        {EXIT, 3, "No module named 'x'", NULL},
        {EXIT, 1, "error while loading shared libraries: libx\n: on another line",
         NULL},
        /* The text alone does not say why: see failure_evidence.c. */
        {SIGNAL, SIGKILL, "", NULL},
        /* The cause is proven: no guess is needed. */
        {CT_CAUSE_OOM, SIGKILL, "CUDA out of memory", NULL},
        {CT_CAUSE_STOPPED, SIGTERM, "No space left on device", NULL},
        {EXEC, EIO, "", NULL},
    };

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct ct_failure failure = fail_as(&others[i]);

        failure_hints_add(&failure, false, "");
        assert_int_equal(failure.facts.count, 0);
    }
}

TEST(where_the_signal_is_told_already_only_words_say_more)
{
    struct ct_failure silent = fail_as(&(struct example){SIGNAL, SIGABRT, "", NULL});
    struct ct_failure failure = fail_as(
        &(struct example){SIGNAL, SIGABRT, "free(): invalid pointer", NULL});

    failure_hints_add(&silent, true, "");
    assert_int_equal(silent.facts.count, 0);
    failure_hints_add(&failure, true, "");
    assert_non_null(strstr(facts_text(&failure.facts), "heap was damaged"));
}

/* The program got over it, and then used a wrong pointer. */
TEST(words_say_nothing_of_a_crash_that_is_known)
{
    static const char text[] =
        "CUDA driver version is insufficient for CUDA runtime version";
    struct ct_failure known = fail_as(&(struct example){SIGNAL, SIGSEGV, text, NULL});
    struct ct_failure failure = known;

    failure_hints_add(&known, true, text);
    assert_int_equal(known.facts.count, 0);
    failure_hints_add(&failure, false, text);
    assert_non_null(strstr(facts_text(&failure.facts), "driver"));
}

TEST(a_name_that_is_none_is_not_quoted)
{
    char text[300];
    struct ct_failure failure;

    (void)snprintf(text, sizeof text, "ModuleNotFoundError: No module named '%0250d'\n",
                   1);
    failure = fail_as(&(struct example){EXIT, 1, text, NULL});
    failure_hints_add(&failure, false, "");
    assert_int_equal(failure.facts.count, 0);
}

TEST(the_last_words_of_a_kind_count)
{
    struct ct_failure failure = fail_as(
        &(struct example){EXIT, 1,
                          "ModuleNotFoundError: No module named 'first'\n"
                          "ModuleNotFoundError: No module named 'second'\n",
                          NULL});

    failure_hints_add(&failure, false, "");
    assert_non_null(
        strstr(facts_text(&failure.facts), "Python finds no module second"));
}

TEST(an_exception_says_more_than_what_was_got_over_before)
{
    static const struct {
        uint8_t cause;
        int code;
        const char *exception, *text, *last_lines, *likely; /* NULL: no hint */
    } rows[] = {
        {EXIT, 2, "", "Connection reset by peer\nusage: t.py [-h]", "",
         "refused arguments (argparse"},
        {EXIT, 1, "ConnectionResetError: [Errno 104] Connection reset by peer", "", "",
         "the other side closed a connection"},
        {EXIT, 1, "OSError: [Errno 28] No space left on device",
         "CUDA out of memory, retrying", "", "a file system is full"},
        {EXIT, 1, "RuntimeError: NCCL error: ncclSystemError: a system call failed", "",
         "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-1",
         "could not create a file in /dev/shm"},
        {EXIT, 1, "ValueError: boom", "retrying: Connection reset by peer", "", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_failure failure = fail_as(
            &(struct example){rows[i].cause, rows[i].code, rows[i].text, NULL});

        (void)ct_copy(failure.exception, sizeof failure.exception, rows[i].exception);
        failure_hints_add(&failure, false, rows[i].last_lines);
        if (!rows[i].likely)
            assert_int_equal(failure.facts.count, 0);
        else if (!strstr(facts_text(&failure.facts), rows[i].likely))
            fail_msg("row %zu: \"%s\" is not in\n%s", i, rows[i].likely,
                     facts_text(&failure.facts));
    }
}

TEST(last_words_about_another_rank_make_a_victim)
{
    static const char gloo[] =
        "[../gloo/transport/tcp/pair.cc:446] Read error [::1]:1: "
        "Connection reset by peer";
    static const char store[] = "DistStoreError: wait timeout after 3000ms, keys: /0";
    static const char watchdog[] = "Watchdog caught collective operation timeout: W\n"
                                   "terminate called after throwing an instance of 'x'";
    static const struct {
        uint8_t cause;
        int code;
        const char *exception, *text;
        bool is_victim;
        enum failure_victim of;
    } rows[] = {
        {SIGNAL, SIGABRT, "", watchdog, true, FAILURE_OF_DELAY},
        {SIGNAL, SIGKILL, "", watchdog, false, FAILURE_NO_VICTIM},
        {SIGNAL, SIGSEGV, "", watchdog, false, FAILURE_NO_VICTIM},
        {EXIT, 1, "RuntimeError: ncclRemoteError: A call failed", "", true,
         FAILURE_OF_END},
        {EXIT, 1, gloo, gloo, true, FAILURE_OF_END},
        {EXIT, 1, "", gloo, true, FAILURE_OF_END},
        {EXIT, 1, store, store, true, FAILURE_OF_DELAY},
        {EXIT, 1, "ValueError: boom", store, false, FAILURE_NO_VICTIM},
        {EXIT, 3, "", "DistStoreError: wait timeout after 1ms\nno memory, bye", false,
         FAILURE_NO_VICTIM},
        {EXIT, 1, "ConnectionResetError: [Errno 104] Connection reset by peer", "",
         false, FAILURE_NO_VICTIM},
        {EXIT, 1, "", "recv: Connection reset by peer", false, FAILURE_NO_VICTIM},
        {EXIT, 1, "", "RuntimeError: DataLoader worker (pid 8) exited", false,
         FAILURE_NO_VICTIM},
        {EXIT, 1, "", "async event : port error\nncclRemoteError: A call failed", false,
         FAILURE_NO_VICTIM},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_failure failure = fail_as(
            &(struct example){rows[i].cause, rows[i].code, rows[i].text, NULL});

        (void)ct_copy(failure.exception, sizeof failure.exception, rows[i].exception);
        failure_hints_add(&failure, false, "");
        if (ct_failure_is_victim(&failure) != rows[i].is_victim ||
            failure_hints_victim(&failure) != rows[i].of)
            fail_msg("row %zu", i);
    }
}

TEST(rules_of_a_file_come_before_the_table)
{
    static const struct failure_rule rules[] = {
        {"quota", "the project's quota", "ask the site", false},
        {"boom", "it went boom", NULL, false},
    };
    struct ct_failure failure = fail_as(
        &(struct example){EXIT, 1, "OSError: [Errno 122] Disk quota exceeded", NULL});
    struct ct_failure other = fail_as(&(struct example){EXIT, 1, "boom", NULL});
    struct ct_failure killed = fail_as(
        &(struct example){CT_CAUSE_STOPPED, SIGTERM, "boom", NULL});

    failure_hints_use(rules, 2);
    failure_hints_add(&failure, false, "");
    failure_hints_add(&other, false, "");
    failure_hints_add(&killed, false, "");
    failure_hints_use(NULL, 0);
    assert_string_equal(ct_facts_find(&failure.facts, CT_FACT_LIKELY),
                        "the project's quota");
    assert_string_equal(ct_facts_find(&failure.facts, CT_FACT_DO), "ask the site");
    assert_non_null(strstr(facts_text(&other.facts), "it went boom"));
    assert_null(ct_facts_find(&other.facts, CT_FACT_DO));
    assert_int_equal(killed.facts.count, 0);
}

TEST(a_line_of_a_log_is_known_by_its_words)
{
    static const struct failure_rule rule = {"custom", "ours", "call us", false};
    struct failure_hint first, second;

    assert_false(failure_hints_find_in_line("all is well", &first));
    assert_false(failure_hints_find_in_line("", &first));
    assert_false(failure_hints_find_in_line("No module named 'x'", &first));
    assert_true(failure_hints_find_in_line(
        "[3] ModuleNotFoundError: No module named 'x.y'", &first));
    assert_non_null(strstr(first.likely, "Python finds no module x.y"));
    assert_false(first.is_consequence);
    assert_true(failure_hints_find_in_line("recv: Connection reset by peer", &second));
    assert_true(second.is_consequence && second.number != first.number);
    failure_hints_use(&rule, 1);
    assert_int_equal(failure_hints_numbers(), failure_hints_count() + 1);
    assert_true(
        failure_hints_find_in_line("a custom Connection reset by peer", &first));
    assert_string_equal(first.likely, "ours");
    assert_string_equal(first.remedy, "call us");
    assert_int_equal(first.number, 0);
    failure_hints_use(NULL, 0);
}

TEST(broken_hardware_is_told_apart_from_programs)
{
    static const char *const broken[] = {
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 74, NVLink: fatal error",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "NET/IB : mlx5_0:1 Got async event : port error",
    };
    static const char *const fine[] = {
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=812, Ch 00000008, MMU Fault",
        "NVRM: Xid (PCI:0000:3b:00): 43, Reset Channel Verif Error",
        "NVRM: Xid (PCI:0000:3b:00)", "torch.OutOfMemoryError: CUDA out of memory", ""};
    const struct failure_rule own = {
        .words = "lane 7 down", .likely = "x", .is_hardware = true};
    struct ct_failure failure = {.cause = CT_CAUSE_EXIT, .code = 1};

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_true(failure_hints_is_hardware(broken[i]));
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        assert_false(failure_hints_is_hardware(fine[i]));
    failure_hints_add(&failure, false,
                      "step 3\n  NET/IB : x Got async event : port error\nbye");
    assert_string_equal(ct_facts_find(&failure.facts, CT_FACT_HARDWARE),
                        "NET/IB : x Got async event : port error");
    failure_hints_use(&own, 1);
    assert_true(failure_hints_is_hardware("switch: lane 7 down"));
    failure_hints_use(NULL, 0);
    assert_false(failure_hints_is_hardware("switch: lane 7 down"));
}
