/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>

#include "launcher/report/exit_status.h"
#include "rendezvous/round/failures.h"
#include "tests/lib/test.h"

/* A verdict as a server makes it. */
static struct ct_verdict verdict_of(int outcome, int cause, int code)
{
    struct ct_verdict v = {.outcome = (uint8_t)outcome, .failure_count = 1};

    v.failures[0] = (struct ct_failure){.cause = (uint8_t)cause, .code = code};
    v.exit_code = outcome == CT_OUTCOME_SUCCEEDED ? 0
                  : outcome == CT_OUTCOME_FAILED || outcome == CT_OUTCOME_CRASH_LOOP
                      ? failures_exit_code(&v.failures[0])
                      : 75;
    return v;
}

TEST(each_verdict_has_a_status_by_style)
{
    static const struct {
        int outcome, cause, code, own, torchrun, class;
        bool is_workers; /* with the style `own` the code is a worker's */
    } rows[] = {
        {CT_OUTCOME_SUCCEEDED, CT_CAUSE_NONE, 0, 0, 0, 0, false},
        {CT_OUTCOME_FAILED, CT_CAUSE_EXIT, 3, 3, 1, 70, true},
        {CT_OUTCOME_FAILED, CT_CAUSE_EXIT, 256, 1, 1, 70, true},
        {CT_OUTCOME_FAILED, CT_CAUSE_RAISED, 0, 1, 1, 70, false},
        {CT_OUTCOME_FAILED, CT_CAUSE_SIGNAL, SIGKILL, 137, 1, 71, true},
        {CT_OUTCOME_FAILED, CT_CAUSE_OOM, SIGKILL, 137, 1, 72, true},
        {CT_OUTCOME_FAILED, CT_CAUSE_HANG, 0, 1, 1, 73, false},
        {CT_OUTCOME_FAILED, CT_CAUSE_EXEC, ENOENT, 127, 1, 127, false},
        {CT_OUTCOME_FAILED, CT_CAUSE_EXEC, EACCES, 126, 1, 126, false},
        {CT_OUTCOME_FAILED, CT_CAUSE_UNKILLABLE, 0, 76, 1, 76, false},
        {CT_OUTCOME_FAILED, CT_CAUSE_NODE_LOST, 0, 75, 1, 75, false},
        {CT_OUTCOME_CRASH_LOOP, CT_CAUSE_EXIT, 2, 2, 1, 74, true},
        {CT_OUTCOME_JOIN_TIMEOUT, CT_CAUSE_JOIN_TIMEOUT, 0, 75, 1, 75, false},
        {CT_OUTCOME_NODES_LOST, CT_CAUSE_EXIT, 3, 75, 1, 75, false},
        {CT_OUTCOME_CLOSED, CT_CAUSE_EXIT, 3, 75, 1, 75, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_verdict v = verdict_of(rows[i].outcome, rows[i].cause, rows[i].code);
        const struct exit_end end = {.verdict = &v};

        assert_int_equal(exit_status(&end, EXIT_STYLE_OWN), rows[i].own);
        assert_int_equal(exit_status(&end, EXIT_STYLE_TORCHRUN), rows[i].torchrun);
        assert_int_equal(exit_status(&end, EXIT_STYLE_CLASS), rows[i].class);
        assert_int_equal(exit_status_is_workers(&end, EXIT_STYLE_OWN),
                         rows[i].is_workers);
        assert_false(exit_status_is_workers(&end, EXIT_STYLE_CLASS));
    }
}

/* The batch system may try again: nodes that hold its connections will leave. */
TEST(a_server_without_room_is_a_reason_to_try_again)
{
    const struct exit_end end = {.error = -EXFULL};

    assert_int_equal(exit_status(&end, EXIT_STYLE_OWN), 75);
    assert_string_equal(ct_error_name(-EXFULL), "E_RESOURCES");
}

TEST(a_failed_run_never_ends_with_success)
{
    const struct ct_verdict v = {.outcome = CT_OUTCOME_FAILED, .exit_code = 0};

    assert_int_equal(exit_status(&(struct exit_end){.verdict = &v}, EXIT_STYLE_OWN), 1);
}

TEST(a_signal_counts_before_an_error_and_that_before_a_verdict)
{
    const struct ct_verdict v = verdict_of(CT_OUTCOME_FAILED, CT_CAUSE_EXIT, 3);
    struct exit_end end = {
        .signal = SIGTERM, .error = CTRUN_E_AUTH, .verdict = &v, .status = 9};

    assert_int_equal(exit_status(&end, EXIT_STYLE_OWN), 143);
    assert_int_equal(exit_status(&end, EXIT_STYLE_CLASS), 143);
    assert_int_equal(exit_status(&end, EXIT_STYLE_TORCHRUN), 1);
    assert_false(exit_status_is_workers(&end, EXIT_STYLE_OWN));
    end.signal = 0;
    assert_int_equal(exit_status(&end, EXIT_STYLE_OWN), 77);
    assert_int_equal(exit_status(&end, EXIT_STYLE_CLASS), 77);
    assert_false(exit_status_is_workers(&end, EXIT_STYLE_OWN));
    end.error = 0;
    assert_int_equal(exit_status(&end, EXIT_STYLE_OWN), 3);
    end.verdict = NULL;
    assert_int_equal(exit_status(&end, EXIT_STYLE_OWN), 9);
    assert_int_equal(exit_status(&end, EXIT_STYLE_TORCHRUN), 1);
    assert_int_equal(exit_status(&(struct exit_end){0}, EXIT_STYLE_TORCHRUN), 0);
}

TEST(a_command_line_that_is_wrong_is_2_in_every_style)
{
    const struct exit_end end = {.error = CTRUN_E_USAGE};

    for (int style = EXIT_STYLE_OWN; style <= EXIT_STYLE_CLASS; style++)
        assert_int_equal(exit_status(&end, (enum exit_style)style), 2);
}
