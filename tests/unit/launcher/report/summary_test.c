/* SPDX-License-Identifier: Apache-2.0 */
/* The text at the end of a run: our block and torchrun's, and what error files say. */
#include "tests/lib/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/report/fact_label.h"
#include "agent/error_file/json.h"
#include "launcher/report/summary.h"
#include "worker_sdk/base/str.h"

static struct messages_block block;

static struct ct_failure failure(int rank, int cause, int code)
{
    struct ct_failure f = {
        .cause = (uint8_t)cause,
        .code = code,
        .rank = rank,
        .local_rank = rank,
        .pid = 8100 + rank,
        .wall_ns = 1795255110000000000ull,
        .uptime_ms = 1234,
        .step = -1,
        .host = "node2",
    };
    return f;
}

static struct ct_verdict verdict_of(struct ct_failure root)
{
    struct ct_verdict v = {.outcome = CT_OUTCOME_FAILED, .failure_count = 1};

    v.failures[0] = root;
    return v;
}

TEST(our_block_tells_the_cause_first)
{
    struct ct_verdict v = verdict_of(failure(1, CT_CAUSE_SIGNAL, SIGKILL));
    const struct summary summary = {
        .verdict = &v, .name = "f.py", .max_restarts = 2, .log_dir = "/logs/attempt_0"};

    v.restart_count = 2;
    v.failures[0].step = 120;
    (void)snprintf(v.failures[0].text, sizeof v.failures[0].text, "a\nb\nc\nd\ne\n");
    v.failures[v.failure_count++] = failure(0, CT_CAUSE_STOPPED, SIGTERM);
    v.failures[v.failure_count++] = failure(2, CT_CAUSE_STOPPED, SIGTERM);
    v.failures[v.failure_count++] = failure(3, CT_CAUSE_EXIT, 1);
    v.failures[v.failure_count++] = failure(-1, CT_CAUSE_NODE_LOST, 0);
    summary_format(&block, &summary);
    assert_string_equal(
        block.text, "ctrun: error[E_SIGNAL]: rank 1 (node2, pid 8101) died of SIGKILL "
                    "(9) at step 120, "
                    "1.2 s after start   exit code 137\n"
                    "  last lines : b\n"
                    "               c\n"
                    "               d\n"
                    "               e\n"
                    "  after it   : node node2 lost\n"
                    "  after it   : ranks 0, 2 stopped by ctrun; also failed: rank 3\n"
                    "  restarts   : 2 of 2 used\n"
                    "  logs       : /logs/attempt_0\n");
}

TEST(a_failure_that_no_round_followed_has_the_reason)
{
    struct ct_verdict v = verdict_of(failure(1, CT_CAUSE_EXIT, 3));
    const struct summary summary = {.verdict = &v, .name = "f.py", .max_restarts = 2};
    struct ct_failure *timeout = &v.failures[v.failure_count++];

    v.outcome = CT_OUTCOME_NODES_LOST;
    v.restart_count = 1;
    *timeout = failure(-1, CT_CAUSE_JOIN_TIMEOUT, 0);
    timeout->host[0] = '\0';
    (void)snprintf(timeout->text, sizeof timeout->text, "1 of 2 nodes joined in 6.0 s");
    (void)ct_facts_add(&timeout->facts, CT_FACT_JOINED, "node2");
    summary_format(&block, &summary);
    assert_string_equal(
        block.text, "ctrun: error[E_EXIT]: rank 1 (node2, pid 8101) exited with 3, 1.2 "
                    "s after start\n"
                    "  after it   : no new round began: 1 of 2 nodes joined in 6.0 s "
                    "(RendezvousTimeoutError)\n"
                    "  joined     : node2\n"
                    "  restarts   : 1 of 2 used\n");
}

TEST(a_full_report_says_how_many_more_there_are)
{
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 3));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    while (v.failure_count < CT_FAILURES_MAX - 1) {
        v.failures[v.failure_count] = failure(v.failure_count, CT_CAUSE_EXIT, 3);
        v.failure_count++;
    }
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "  after it   : also failed: ranks 1-14\n"));
    v.failures[v.failure_count] = failure(v.failure_count, CT_CAUSE_STOPPED, SIGTERM);
    v.failure_count++;
    v.more = (struct ct_more){.failed = 5, .stopped = 107};
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text,
                           "  after it   : rank 15 and 107 more stopped by ctrun; also "
                           "failed: ranks 1-14 and 5 more\n"));
    summary_torchrun_format(&block, &summary);
    assert_non_null(strstr(block.text, "\n  and 5 more failed\n"));
    assert_non_null(strstr(block.text,
                           "\n  108 other ranks were stopped by ctrun: 15 and 107 "
                           "more\n"));
}

TEST(how_much_later_others_failed_is_told_by_node)
{
    struct ct_verdict v = verdict_of(failure(1, CT_CAUSE_EXIT, 3));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    for (int rank = 3; rank < 8; rank++) {
        v.failures[v.failure_count] = failure(rank, CT_CAUSE_EXIT, 1);
        if (rank > 3)
            (void)snprintf(v.failures[v.failure_count].host, CT_HOST_MAX, "node3");
        v.failures[v.failure_count++].later_ms = rank == 7 ? 0 : rank == 6 ? 1500 : 210;
    }
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text,
                           "  root cause : rank 1 on node2 exited with 3\n"
                           "  after it   : rank 3 (node2) failed 0.2 s later\n"
                           "  after it   : ranks 4-5 (node3) failed 0.2 s later\n"
                           "  after it   : rank 6 (node3) failed 1.5 s later\n"
                           "  after it   : also failed: rank 7\n"));
}

TEST(an_exit_code_has_one_line)
{
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 3));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    summary_format(&block, &summary);
    assert_string_equal(block.text,
                        "ctrun: error[E_EXIT]: rank 0 (node2, pid 8100) exited with "
                        "3, 1.2 s after start\n");
}

TEST(a_crash_loop_says_that_no_restart_helps)
{
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 1));
    const struct summary summary = {
        .verdict = &v, .name = "f.py", .max_restarts = 5, .min_uptime_ms = 30000};

    v.outcome = CT_OUTCOME_CRASH_LOOP;
    v.restart_count = 1;
    v.failures[0].uptime_ms = 400;
    summary_format(&block, &summary);
    assert_string_equal(
        block.text,
        "ctrun: error[E_CRASH_LOOP]: rank 0 (node2) failed twice in the same way 0.4 "
        "s "
        "after start (exit 1): not restarting\n"
        "  why        : same failure twice within 30 s of start, not "
        "restarting\n"
        "  do         : fix it; a restart only helps for failures that do not happen "
        "every time "
        "(--min-uptime 30; with 0 ctrun always restarts)\n"
        "  restarts   : 1 of 5 used\n");
    v.failures[0].uptime_ms = 93000;
    v.failures[0].step = 120;
    (void)snprintf(v.failures[0].exception, sizeof v.failures[0].exception, "E: boom");
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "failed twice in the same way at step 120 (exit "
                                       "1: E: boom): not restarting\n"));
    assert_non_null(strstr(block.text, "same failure twice at step 120, not"));
}

TEST(facts_of_the_node_and_other_ranks_follow_the_cause)
{
    struct ct_verdict v = verdict_of(failure(5, CT_CAUSE_SIGNAL, SIGSEGV));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    ct_facts_add(&v.failures[0].facts, CT_FACT_CORE, "none (ulimit -c 0)");
    ct_facts_add(&v.failures[0].facts, CT_FACT_LIKELY, "this");
    ct_facts_add(&v.failures[0].facts, CT_FACT_MISSING, "one");
    ct_facts_add(&v.failures[0].facts, CT_FACT_MISSING, "two");
    ct_facts_add(&v.failures[0].facts, 200, "of a newer agent");
    for (int rank = 0; rank < 4; rank++)
        v.failures[v.failure_count++] = failure(rank, CT_CAUSE_STOPPED, SIGTERM);
    v.failures[v.failure_count++] = failure(7, CT_CAUSE_STOPPED, SIGTERM);
    v.failures[v.failure_count] = failure(4, CT_CAUSE_EARLY, 0);
    (void)snprintf(v.failures[v.failure_count++].host, CT_HOST_MAX, "node3");
    v.failures[v.failure_count++] = failure(8, CT_CAUSE_ENDED, 0);
    summary_format(&block, &summary);
    assert_string_equal(
        block.text,
        "ctrun: error[E_SIGNAL]: rank 5 (node2, pid 8105) died of SIGSEGV (11), 1.2 s "
        "after start   exit code 139\n"
        "  core       : none (ulimit -c 0)\n"
        "  likely     : this\n"
        "  missing    : one\n"
        "               two\n"
        "  also       : of a newer agent\n"
        "  root cause : rank 5 on node2 died of SIGSEGV (11)\n"
        "  before it  : rank 4 had ended with 0\n"
        "  also       : rank 8 ended with 0, whether before it is not known\n"
        "  after it   : ranks 0-3, 7 stopped by ctrun\n");
    assert_int_equal(block.level, MESSAGES_ERROR);
    summary_torchrun_format(&block, &summary);
    assert_int_equal(block.level, MESSAGES_TABLE);      /* no time stamp in front */
    assert_null(strstr(block.text, "(local_rank: 4)")); /* this worker succeeded */
}

TEST(an_unreachable_node_is_advised_by_what_works)
{
    struct ct_verdict v = verdict_of(failure(-1, CT_CAUSE_UNREACHABLE, 0));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    ct_copy(v.failures[0].text, sizeof v.failures[0].text,
            "cannot reach n1: works: no");
    summary_format(&block, &summary);
    assert_null(strstr(block.text, "a firewall"));
    ct_facts_add(&v.failures[0].facts, CT_FACT_WORKS, "node2 -> n1");
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "error[E_UNREACHABLE]: node2 cannot reach n1"));
    assert_non_null(
        strstr(block.text, "  works      : node2 -> n1\n  likely     : a fire"));
}

TEST(a_process_left_behind_that_cannot_be_killed_is_told_with_its_own_node)
{
    struct ct_verdict v = verdict_of(failure(-1, CT_CAUSE_UNKILLABLE, SIGKILL));

    ct_copy(v.failures[0].text, sizeof v.failures[0].text,
            "pid 5 on h1, which a worker left behind, did not die");
    summary_format(&block, &(const struct summary){.verdict = &v, .name = "f.py"});
    assert_non_null(strstr(
        block.text, "]: pid 5 on h1, which a worker left behind, did not die\n"));
}

/* The text of the error, which is fork_limit.c's, names the limit. */
TEST(the_limit_of_processes_that_was_reached_is_to_be_raised)
{
    struct ct_verdict v = verdict_of(failure(1, CT_CAUSE_AGENT, EAGAIN));

    ct_copy(v.failures[0].text, sizeof v.failures[0].text,
            "fork: Resource temporarily unavailable: it is unknown which limit was "
            "reached: ulimit -u, or pids.max of a cgroup");
    summary_format(&block, &(const struct summary){.verdict = &v, .name = "f.py"});
    assert_non_null(strstr(block.text, "ulimit -u, or pids.max of a cgroup\n"));
    assert_non_null(
        strstr(block.text,
               "  do         : raise the limit of processes (named above) on node2\n"));
}

TEST(every_fact_has_a_label_of_its_own)
{
    for (uint8_t key = 1; key <= CT_FACT_LAST; key++)
        assert_int_equal(fact_key(fact_label(key)), key);
    assert_int_equal(fact_key(fact_label(0)), 0);
    assert_int_equal(fact_key("nothing"), 0);
}

TEST(torchruns_block_has_torchruns_labels)
{
    struct ct_verdict v = verdict_of(failure(1, CT_CAUSE_EXIT, 3));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    v.failures[v.failure_count++] = failure(2, CT_CAUSE_SIGNAL, SIGSEGV);
    summary_torchrun_format(&block, &summary);
    assert_string_equal(
        block.text,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "f.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n"
        "[1]:\n"
        "  time      : 2026-11-21_09:58:30\n"
        "  host      : node2\n"
        "  rank      : 2 (local_rank: 2)\n"
        "  exitcode  : -11 (pid: 8102)  (SIGSEGV)\n"
        "  error_file: <N/A>\n"
        "  traceback : Signal 11 (SIGSEGV) received by PID 8102\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2026-11-21_09:58:30\n"
        "  host      : node2\n"
        "  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : 3 (pid: 8101) \n"
        "  error_file: <N/A>\n"
        "  traceback : To enable traceback see: "
        "https://pytorch.org/docs/stable/elastic/errors.html\n"
        "============================================================\n");
}

TEST(ranks_that_were_stopped_are_one_line_of_torchruns_block)
{
    struct ct_verdict v = verdict_of(failure(3, CT_CAUSE_EXIT, 3));
    struct summary summary = {.verdict = &v, .name = "f.py"};

    for (int rank = 0; rank < 8; rank++)
        if (rank != 3)
            v.failures[v.failure_count++] = failure(rank, CT_CAUSE_STOPPED, SIGTERM);
    summary_torchrun_format(&block, &summary);
    assert_non_null(strstr(block.text,
                           "Failures:\n  <NO_OTHER_FAILURES>\n"
                           "  7 other ranks were stopped by ctrun: 0-2, 4-7\n---"));
    assert_null(strstr(block.text, "SIGTERM"));
    v.failure_count = 2;
    summary_torchrun_format(&block, &summary);
    assert_non_null(strstr(block.text, "  1 other rank was stopped by ctrun: 0\n---"));
    summary.lists_stopped = true;
    summary_torchrun_format(&block, &summary);
    assert_null(strstr(block.text, "by ctrun:"));
    assert_non_null(strstr(block.text, "  rank      : 0 (local_rank: 0)\n"));
}

TEST(a_traceback_is_whole_where_no_table_follows)
{
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 1));
    struct summary summary = {.verdict = &v, .name = "f.py", .is_alone = true};

    (void)snprintf(v.failures[0].exception, sizeof v.failures[0].exception, "E: x");
    (void)snprintf(v.failures[0].text, sizeof v.failures[0].text,
                   "Traceback:\n a\n b\n c\n d\nE: x\n");
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "  traceback  : Traceback:\n"));
    summary.is_alone = false;
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "  traceback  :  b\n"));
}

TEST(an_excluded_node_is_named_though_the_rounds_that_followed_fill_the_report)
{
    static struct ct_stop stops[5];
    struct past_failures past = {.count = 5};
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 1));
    const struct summary summary = {.verdict = &v, .name = "f.py", .past = &past};

    for (int i = 0; i < 5; i++) {
        stops[i].reason = CT_STOP_FAILURE;
        stops[i].cause = failure(0, CT_CAUSE_EXIT, 1);
        past.list[i] = &stops[i];
    }
    summary_format(&block, &summary);
    assert_null(strstr(block.text, "  excluded"));
    stops[0].culprit_fate = CT_CULPRIT_EXCLUDED;
    (void)snprintf(stops[0].culprit, sizeof stops[0].culprit, "node7");
    stops[4].culprit_fate = CT_CULPRIT_KEPT;
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "  excluded   : node7 excluded: it failed first "
                                       "in two rounds in a row"));
    assert_null(strstr(block.text, "not excluded"));
}

TEST(torchruns_block_has_the_end_that_was_seen)
{
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_HANG, 0));
    const struct summary summary = {
        .verdict = &v, .name = "f.py", .lists_stopped = true};

    (void)snprintf(v.failures[0].text, sizeof v.failures[0].text, "it waits");
    v.failures[v.failure_count] = failure(1, CT_CAUSE_STOPPED, SIGTERM);
    v.failures[v.failure_count++].end_code = 20;
    v.failures[v.failure_count] = failure(2, CT_CAUSE_STOPPED, SIGTERM);
    v.failures[v.failure_count++].end_code = -SIGKILL;
    summary_torchrun_format(&block, &summary);
    assert_non_null(strstr(block.text, "  exitcode  : <N/A> (pid: 8100) \n"));
    assert_non_null(strstr(block.text,
                           "  exitcode  : 20 (pid: 8101) \n  error_file: <N/A>\n"
                           "  traceback : stopped by ctrun\n"));
    assert_non_null(strstr(block.text, "  exitcode  : -9 (pid: 8102)  (SIGKILL)\n"));
    assert_non_null(strstr(block.text, "  traceback : E_HANG: it waits\n"));
    v.failures[0].end_code = -SIGTERM;
    summary_torchrun_format(&block, &summary);
    assert_non_null(strstr(
        block.text, "  traceback : E_HANG: it waits; so ctrun ended it: Signal 15 "
                    "(SIGTERM) received by PID 8100\n"));
}

TEST(a_run_that_ends_by_a_lost_node_is_an_error)
{
    struct ct_verdict v = {.outcome = CT_OUTCOME_NODES_LOST};
    struct summary summary = {.verdict = &v, .name = "f.py", .min_nodes = 2};

    summary_format(&block, &summary);
    assert_non_null(
        strstr(block.text, "error[E_PEER_LOST]: fewer than 2 nodes are left"));
    summary.counts_tasks = true;
    summary_format(&block, &summary);
    assert_non_null(
        strstr(block.text, "error[E_PEER_LOST]: fewer than 2 tasks are left"));
    v = verdict_of(failure(-1, CT_CAUSE_NODE_LOST, 0));
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "error[E_PEER_LOST]: node node2 "));
}

TEST(a_part_of_a_traceback_begins_at_a_frame)
{
    static const struct {
        const char *text, *first;
    } rows[] = {
        {"    g()\n    ^^^\n  File \"a.py\", line 2, in g\n    h()\nE: x\n",
         "  traceback  :   File \"a.py\", line 2, in g\n"},
        {"  File \"a.py\", line 2, in g\n    h()\n    ^^^\nE: x\n",
         "  traceback  :   File \"a.py\", line 2, in g\n"},
        {"    h()\n    ~~^^\nE: x\nmore\nlines\n", "  traceback  : E: x\n"},
    };
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 1));
    const struct summary summary = {.verdict = &v, .name = "f.py"};

    (void)snprintf(v.failures[0].exception, sizeof v.failures[0].exception, "E: x");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)snprintf(v.failures[0].text, sizeof v.failures[0].text, "%s",
                       rows[i].text);
        summary_format(&block, &summary);
        if (!strstr(block.text, rows[i].first))
            fail_msg("row %zu:\n%s", i, block.text);
    }
}

TEST(a_traceback_is_indented_and_the_only_failure_stands_alone)
{
    char stack[] = "Traceback:\n  line\nValueError: boom\n";
    char message[] = "ValueError: boom";
    struct json_error_file files[1] = {{.message = message, .callstack = stack}};
    struct ct_verdict v = verdict_of(failure(0, CT_CAUSE_EXIT, 1));
    const struct summary summary = {.verdict = &v, .name = "f.py", .files = files};

    (void)snprintf(v.failures[0].error_file, sizeof v.failures[0].error_file,
                   "/e.json");
    summary_torchrun_format(&block, &summary);
    assert_non_null(strstr(block.text, "Failures:\n  <NO_OTHER_FAILURES>\n---"));
    assert_non_null(strstr(block.text,
                           "  error_file: /e.json\n  traceback : Traceback:\n"
                           "    line\n  ValueError: boom\n==="));
}

TEST(no_worker_no_torchrun_block)
{
    struct ct_waiting waiting = {.joined = 1, .min_nodes = 2, .missing = "node2"};
    struct ct_verdict v = {.outcome = CT_OUTCOME_JOIN_TIMEOUT};
    struct summary summary = {
        .verdict = &v, .min_nodes = 2, .waiting = &waiting, .waited_ms = 5000};

    summary_torchrun_format(&block, &summary);
    assert_int_equal(block.length, 0);
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text,
                           "ctrun: error[E_JOIN_TIMEOUT]: 1 of 2 nodes joined in 5.0 s "
                           "(RendezvousTimeoutError)\n  missing    : node2\n"));
    assert_non_null(strstr(block.text, "join_timeout=1200; fewer: --nnodes MIN:MAX\n"));
    summary.is_static = true; /* this has another key, and waits for all nodes */
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "longer: --rdzv-conf timeout=1200\n"));
    summary.is_static = false;
    summary.counts_tasks = summary.waits_for_all = true; /* a step of tasks */
    summary_format(&block, &summary);
    assert_non_null(strstr(block.text, "1 of 2 tasks joined in 5.0 s"));
    assert_non_null(strstr(block.text, "look at the missing tasks; longer: --rdzv-conf "
                                       "join_timeout=1200\n"));
}

TEST(lines_for_people_are_short)
{
    struct ct_waiting waiting = {
        .joined = 1, .min_nodes = 2, .max_nodes = 2, .missing = "node2"};
    struct ct_stop stop = {.reason = CT_STOP_FAILURE,
                           .restart_count = 1,
                           .max_restarts = 3,
                           .cause = failure(5, CT_CAUSE_EXIT, 7)};
    char text[512];
    char span[MESSAGES_SPAN_MAX];

    messages_format_waiting(text, sizeof text, &waiting, false, 23400);
    assert_string_equal(text, "waiting 23 s: 1/2 nodes; missing node2");
    messages_format_waiting(text, sizeof text, &waiting, true, 23400);
    assert_string_equal(text, "waiting 23 s: 1/2 tasks; missing node2");
    waiting.min_nodes = 1;
    waiting.left_ms = 6600;
    messages_format_waiting(text, sizeof text, &waiting, false, 23400);
    assert_string_equal(
        text, "waiting 23 s: enough nodes have joined (1 of at most 2); the start "
              "waits up to 7 s for more; missing node2");
    messages_format_stop(text, sizeof text, &stop);
    assert_string_equal(text, "restart 1/3: rank 5 on node2 exited with 7");
    stop.reason = CT_STOP_NODE_LOST;
    stop.cause = failure(-1, CT_CAUSE_NODE_LOST, 0);
    stop.cause.step = -1;
    messages_format_stop(text, sizeof text, &stop);
    assert_string_equal(text,
                        "warning[E_PEER_LOST]: node2 is gone: no reason is known; "
                        "the next round starts when enough nodes have joined");
    ct_copy(stop.cause.text, sizeof stop.cause.text, "nothing received for 5.0 s");
    ct_facts_add(&stop.cause.facts, CT_FACT_WAS, "10.1.0.2, ranks 8-15");
    stop.cause.step = 412;
    messages_format_stop(text, sizeof text, &stop);
    assert_string_equal(text,
                        "warning[E_PEER_LOST]: node2 (10.1.0.2, ranks 8-15) is gone: "
                        "nothing received for 5.0 s; its last known step is 412; the "
                        "next round starts when enough nodes have joined");
    stop = (struct ct_stop){.reason = CT_STOP_MEMBERSHIP, .cause = {.rank = -1}};
    messages_format_stop(text, sizeof text, &stop);
    assert_string_equal(text, "new round: the set of nodes changes");
    ct_facts_add(&stop.cause.facts, CT_FACT_JOINED, "node3, node4 and 2 more");
    messages_format_stop(text, sizeof text, &stop);
    assert_string_equal(text, "new round: joined: node3, node4 and 2 more");
    messages_format_span(span, 7860000);
    assert_string_equal(span, "2 h 11 min");
    messages_format_span(span, 93000);
    assert_string_equal(span, "93 s");
}

/* ---- Error files --------------------------------------------------------------------- */

static char folder[] = "/tmp/summary_test_XXXXXX";
static char path[128];

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    return snprintf(path, sizeof path, "%s/error.json", folder) < 0;
}

static int remove_folder(void **state)
{
    (void)unlink(path);
    return rmdir(folder);
}

static void put(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

TEST(both_forms_of_error_files_are_read)
{
    struct json_error_file file;

    put("{\"message\": {\"message\": \"ValueError: boom\", \"extraInfo\": "
        "{\"py_callstack\": "
        "\"Traceback ...\\n\", \"timestamp\": \"1795255662\"}}}");
    assert_int_equal(json_error_file_read(path, &file), 1);
    assert_string_equal(file.message, "ValueError: boom");
    assert_string_equal(file.callstack, "Traceback ...\n");
    json_error_file_deinit(&file);
    put("{\"message\": \"flat\", \"timestamp\": 7}");
    assert_int_equal(json_error_file_read(path, &file), 1);
    assert_string_equal(file.message, "flat");
    assert_null(file.callstack);
    json_error_file_deinit(&file);
}

TEST(broken_error_files_are_told_apart_from_absent_ones)
{
    static const char *const broken[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"message\": 5}",
        "{\"message\": {}}",
        "{\"message\": {\"message\": [1]}}",
        "\xff\xfe",
    };
    struct json_error_file file;
    char deep[300];

    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        put(broken[i]);
        assert_int_equal(json_error_file_read(path, &file), -EBADMSG);
    }
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    put(deep);
    assert_int_equal(json_error_file_read(path, &file), -EBADMSG);
    assert_int_equal(truncate(path, JSON_FILE_MAX_BYTES + 1), 0);
    assert_int_equal(json_error_file_read(path, &file), -EFBIG);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(json_error_file_read(path, &file), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* reading it must not block */
    assert_int_equal(json_error_file_read(path, &file), -EBADMSG);
    assert_int_equal(unlink(path), 0);
}

TEST(the_launchers_own_file_gets_the_exit_code)
{
    char copy[140];
    char text[512] = "";
    FILE *file;

    (void)snprintf(copy, sizeof copy, "%s/copy.json", folder);
    put("{\"message\": {\"message\": \"boom\"}}");
    assert_int_equal(json_error_file_copy(path, copy, 3, true, NULL), 0);
    file = fopen(copy, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    (void)fclose(file);
    assert_string_equal(text, "{\"message\":{\"message\":\"boom\",\"errorCode\":3}}");
    assert_int_equal(json_error_file_write(copy, "got signal: 15", NULL), 0);
    struct json_error_file read;
    assert_int_equal(json_error_file_read(copy, &read), 1);
    assert_string_equal(read.message, "got signal: 15");
    json_error_file_deinit(&read);
    assert_int_equal(unlink(copy), 0);
}

int main(void)
{
    return test_run(make_folder, remove_folder);
}
