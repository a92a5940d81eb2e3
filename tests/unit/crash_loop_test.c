/* SPDX-License-Identifier: Apache-2.0 */
/* When a failure is the same one again. */
#include <errno.h>
#include <signal.h>

#include "rendezvous/crash_loop.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

static struct ct_failure early(int cause, int code, const char *text)
{
    struct ct_failure failure = {
        .cause = (uint8_t)cause, .code = code, .step = -1, .is_early = 1};

    (void)ct_copy(failure.text, sizeof failure.text, text);
    return failure;
}

static bool is_loop(struct ct_failure first, struct ct_failure second)
{
    struct crash_loop loop = {0};

    assert_false(crash_loop_take(&loop, &first));
    return crash_loop_take(&loop, &second);
}

static void the_same_end_twice_right_after_the_start_is_a_loop(void **state)
{
    (void)state;
    assert_true(
        is_loop(early(CT_CAUSE_EXIT, 1, "boom"), early(CT_CAUSE_EXIT, 1, "boom")));
    assert_true(is_loop(early(CT_CAUSE_EXIT, 1, ""), early(CT_CAUSE_EXIT, 1, "")));
    assert_true(is_loop(early(CT_CAUSE_SIGNAL, SIGSEGV, ""),
                        early(CT_CAUSE_SIGNAL, SIGSEGV, "")));
    assert_true(is_loop(early(CT_CAUSE_OOM, SIGKILL, "oom_kill 0 -> 1 in /job"),
                        early(CT_CAUSE_OOM, SIGKILL, "oom_kill 1 -> 2 in /job")));
}

static void another_end_is_none(void **state)
{
    struct ct_failure later = early(CT_CAUSE_EXIT, 1, "boom");
    struct ct_failure slow = early(CT_CAUSE_EXIT, 1, "boom");

    (void)state;
    later.step = 7;
    slow.is_early = 0;
    assert_false(is_loop(early(CT_CAUSE_EXIT, 1, "boom"), later)); /* it got further */
    assert_false(is_loop(early(CT_CAUSE_EXIT, 1, "boom"), slow));
    assert_false(is_loop(slow, early(CT_CAUSE_EXIT, 1, "boom")));
    assert_false(
        is_loop(early(CT_CAUSE_EXIT, 1, "boom"), early(CT_CAUSE_EXIT, 2, "boom")));
    assert_false(
        is_loop(early(CT_CAUSE_EXIT, 1, "boom"), early(CT_CAUSE_EXIT, 1, "bang")));
    assert_false(is_loop(early(CT_CAUSE_EXIT, SIGSEGV, ""),
                         early(CT_CAUSE_SIGNAL, SIGSEGV, "")));
}

static void only_the_last_line_counts_and_no_number_in_it(void **state)
{
    (void)state;
    assert_true(is_loop(
        early(CT_CAUSE_EXIT, 1, "a\n2026-11-21 17:50:01 [812] no file at 0x7fab\n\n"),
        early(CT_CAUSE_EXIT, 1, "b\n2026-11-22 07:05:41 [9310] no file at 0x7e\n")));
    assert_false(is_loop(early(CT_CAUSE_EXIT, 1, "KeyError: 'a'"),
                         early(CT_CAUSE_EXIT, 1, "KeyError: 'b'")));
}

static void what_comes_from_outside_is_none(void **state)
{
    static const struct {
        int cause, code;
        const char *text;
    } table[] = {
        {CT_CAUSE_SIGNAL, SIGKILL, ""},  {CT_CAUSE_SIGNAL, SIGTERM, ""},
        {CT_CAUSE_NODE_LOST, 0, "gone"}, {CT_CAUSE_EXIT, 1, "E_PEER_LOST: rank 2"},
        {CT_CAUSE_HANG, 0, "state R"},   {CT_CAUSE_JOIN_TIMEOUT, 0, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_false(is_loop(early(table[i].cause, table[i].code, table[i].text),
                             early(table[i].cause, table[i].code, table[i].text)));
}

static void a_third_one_in_between_breaks_the_chain(void **state)
{
    struct crash_loop loop = {0};
    struct ct_failure same = early(CT_CAUSE_EXIT, 1, "boom");
    struct ct_failure other = early(CT_CAUSE_SIGNAL, SIGKILL, "");

    (void)state;
    assert_false(crash_loop_take(&loop, &same));
    assert_false(crash_loop_take(&loop, &other));
    assert_false(crash_loop_take(&loop, &same));
    assert_true(crash_loop_take(&loop, &same));
}

static void no_restart_helps_a_program_that_is_not_there(void **state)
{
    struct ct_failure failure = early(CT_CAUSE_EXEC, ENOENT, "");

    (void)state;
    assert_true(crash_loop_is_hopeless(&failure));
    failure.code = EAGAIN;
    assert_false(crash_loop_is_hopeless(&failure));
    failure = early(CT_CAUSE_EXIT, ENOENT, "");
    assert_false(crash_loop_is_hopeless(&failure));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_end_twice_right_after_the_start_is_a_loop),
        cmocka_unit_test(another_end_is_none),
        cmocka_unit_test(only_the_last_line_counts_and_no_number_in_it),
        cmocka_unit_test(what_comes_from_outside_is_none),
        cmocka_unit_test(a_third_one_in_between_breaks_the_chain),
        cmocka_unit_test(no_restart_helps_a_program_that_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
