/* SPDX-License-Identifier: Apache-2.0 */
/* When two failures are equal. */
#include <errno.h>
#include <signal.h>

#include "rendezvous/round/crash_loop.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

static struct ct_failure failed(int cause, int code, const char *text)
{
    struct ct_failure failure = {
        .cause = (uint8_t)cause, .code = code, .step = -1, .may_loop = 1};

    (void)ct_copy(failure.text, sizeof failure.text, text);
    return failure;
}

static bool is_loop(struct ct_failure first, struct ct_failure second)
{
    struct crash_loop loop = {0};

    assert_false(crash_loop_take(&loop, &first));
    return crash_loop_take(&loop, &second);
}

TEST(the_same_end_twice_without_progress_is_a_loop)
{
    assert_true(
        is_loop(failed(CT_CAUSE_EXIT, 1, "boom"), failed(CT_CAUSE_EXIT, 1, "boom")));
    assert_true(is_loop(failed(CT_CAUSE_EXIT, 7, ""), failed(CT_CAUSE_EXIT, 7, "")));
    assert_true(is_loop(failed(CT_CAUSE_SIGNAL, SIGKILL, ""),
                        failed(CT_CAUSE_SIGNAL, SIGKILL, "")));
    assert_true(is_loop(failed(CT_CAUSE_SIGNAL, SIGSEGV, ""),
                        failed(CT_CAUSE_SIGNAL, SIGSEGV, "")));
    assert_true(is_loop(failed(CT_CAUSE_OOM, SIGKILL, "oom_kill 0 -> 1 in /job"),
                        failed(CT_CAUSE_OOM, SIGKILL, "oom_kill 1 -> 2 in /job")));
}

TEST(another_end_is_none)
{
    struct ct_failure later = failed(CT_CAUSE_EXIT, 1, "boom");
    struct ct_failure slow = failed(CT_CAUSE_EXIT, 1, "boom");

    later.step = 7;
    slow.may_loop = 0;
    assert_false(is_loop(failed(CT_CAUSE_EXIT, 1, "boom"), later)); /* more steps */
    assert_false(is_loop(failed(CT_CAUSE_EXIT, 1, "boom"), slow));
    assert_false(is_loop(slow, failed(CT_CAUSE_EXIT, 1, "boom")));
    assert_false(
        is_loop(failed(CT_CAUSE_EXIT, 1, "boom"), failed(CT_CAUSE_EXIT, 2, "boom")));
    assert_false(
        is_loop(failed(CT_CAUSE_EXIT, 1, "boom"), failed(CT_CAUSE_EXIT, 1, "bang")));
    assert_false(is_loop(failed(CT_CAUSE_EXIT, SIGSEGV, ""),
                         failed(CT_CAUSE_SIGNAL, SIGSEGV, "")));
}

TEST(an_exit_with_1_and_no_words_is_equal_to_nothing)
{
    assert_false(is_loop(failed(CT_CAUSE_EXIT, 1, ""), failed(CT_CAUSE_EXIT, 1, "")));
}

TEST(the_exception_counts_and_not_what_was_written_around_it)
{
    struct ct_failure first = failed(CT_CAUSE_EXIT, 1, "closing a");
    struct ct_failure second = failed(CT_CAUSE_EXIT, 1, "closing b");

    (void)ct_copy(first.exception, sizeof first.exception, "KeyError: 17");
    (void)ct_copy(second.exception, sizeof second.exception, "KeyError: 18");
    assert_true(is_loop(first, second));
    (void)ct_copy(second.exception, sizeof second.exception, "ValueError: 17");
    assert_false(is_loop(first, second));
}

TEST(one_that_was_still_ending_is_equal_to_one_that_had_ended)
{
    assert_true(is_loop(failed(CT_CAUSE_EXIT, 1, "E: boom"),
                        failed(CT_CAUSE_RAISED, 0, "E: boom")));
}

TEST(only_the_last_line_counts_and_no_number_in_it)
{
    assert_true(is_loop(
        failed(CT_CAUSE_EXIT, 1, "a\n2026-11-21 17:50:01 [812] no file at 0x7fab\n\n"),
        failed(CT_CAUSE_EXIT, 1, "b\n2026-11-22 07:05:41 [9310] no file at 0x7e\n")));
    assert_false(is_loop(failed(CT_CAUSE_EXIT, 1, "KeyError: 'a'"),
                         failed(CT_CAUSE_EXIT, 1, "KeyError: 'b'")));
}

TEST(what_comes_from_outside_is_none)
{
    static const struct {
        int cause, code;
        const char *text;
        int error;
    } table[] = {
        {CT_CAUSE_SIGNAL, SIGTERM, "", 0},
        {CT_CAUSE_NODE_LOST, 0, "gone", 0},
        {CT_CAUSE_EXIT, 1, "rank 2 died", CTRUN_E_PEER_LOST},
        {CT_CAUSE_SIGNAL, SIGABRT, "it timed out", CTRUN_E_PEER_LOST},
        {CT_CAUSE_HANG, 0, "state R", 0},
        {CT_CAUSE_JOIN_TIMEOUT, 0, "", 0},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct ct_failure failure = failed(table[i].cause, table[i].code,
                                           table[i].text);

        failure.error = table[i].error;
        assert_false(is_loop(failure, failure));
    }
}

TEST(a_third_one_in_between_breaks_the_chain)
{
    struct crash_loop loop = {0};
    struct ct_failure same = failed(CT_CAUSE_EXIT, 1, "boom");
    struct ct_failure other = failed(CT_CAUSE_SIGNAL, SIGTERM, "");

    assert_false(crash_loop_take(&loop, &same));
    assert_false(crash_loop_take(&loop, &other));
    assert_false(crash_loop_take(&loop, &same));
    assert_true(crash_loop_take(&loop, &same));
}

TEST(no_restart_helps_a_program_that_is_not_there)
{
    struct ct_failure failure = failed(CT_CAUSE_EXEC, ENOENT, "");

    assert_true(crash_loop_is_hopeless(&failure));
    failure.code = EAGAIN;
    assert_false(crash_loop_is_hopeless(&failure));
    failure = failed(CT_CAUSE_EXIT, ENOENT, "");
    assert_false(crash_loop_is_hopeless(&failure));
}
