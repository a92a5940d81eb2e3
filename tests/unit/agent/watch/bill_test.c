/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "agent/watch/bill.h"
#include "tests/lib/test.h"

enum {
    AT = 1000
};

static uint64_t sum_of(const struct bill_sum *sum)
{
    uint64_t ms = 0;

    for (int i = 0; i < sum->count; i++)
        ms += sum->parts[i].ms;
    return ms;
}

static void expect_text(const struct bill *bill, const char *text)
{
    struct bill_sum sum;
    char found[512];

    bill_add_up(&sum, bill);
    assert_int_equal(sum_of(&sum), sum.total_ms);
    bill_format_parts(found, sizeof found, &sum);
    assert_string_equal(found, text);
}

TEST(each_phase_is_what_lies_between_two_ends)
{
    struct bill bill;
    struct bill_sum sum;

    bill_begin(&bill, BILL_DETECT, AT);
    for (int phase = 0; phase < BILL_REFORM; phase++)
        bill_end_phase(&bill, (enum bill_phase)phase, (uint64_t)(AT + 10 * (phase + 1)),
                       phase);
    expect_text(&bill,
                "detect 0.010, decide 0.010, stop 0.010, meet 0.010, start 0.010, "
                "import 0.010, init 0.010, first step 0.010");
    bill_add_up(&sum, &bill);
    assert_int_equal(sum.total_ms, 80);
    assert_int_equal(sum.unknown, 0);
    assert_int_equal(sum.parts[7].rank, 7);
    assert_int_equal(bill_known(&bill), 0xff);
}

TEST(the_start_of_a_rank_names_its_slowest_phase)
{
    struct bill bill;
    struct bill_rank rank = {.rank = 5};
    char text[512];
    struct ct_writer out;

    bill_begin(&bill, BILL_START, AT);
    bill_end_phase(&bill, BILL_START, AT + 10, -1);
    bill_end_phase(&bill, BILL_INIT, AT + 2010, -1);
    bill_add_up(&rank.sum, &bill);
    ct_writer_init(&out, text, sizeof text);
    bill_write_rank(&out, &rank);
    ct_write_u8(&out, 0);
    assert_true(ct_write_end(&out) > 0);
    assert_string_equal(text, "{\"rank\":5,\"total_ms\":2010,\"parts\":[{\"phases\":["
                              "\"start\"],\"ms\":10},{\"phases\":[\"import\","
                              "\"init\"],\"ms\":2000}],\"unknown\":[\"first step\"],"
                              "\"slowest\":[\"import\",\"init\"]}");
}

TEST(a_recovery_has_phases_of_its_own)
{
    struct bill bill;
    struct bill_sum sum;

    bill_begin_recovery(&bill, BILL_DECIDE, AT);
    bill_end_phase(&bill, BILL_DECIDE, AT + 40, -1);
    bill_add_up(&sum, &bill);
    assert_int_equal(sum.unknown, 1u << BILL_DETECT | 1u << BILL_REFORM |
                                      1u << BILL_NEXT_STEP | 1u << BILL_JOIN);
    bill_end_phase(&bill, BILL_JOIN, AT + 300, -1);
    expect_text(&bill, "decide 0.040, re-form and next step and join 0.260");
    bill_end_phase(&bill, BILL_NEXT_STEP, AT + 50, 1);
    expect_text(&bill, "decide 0.040, re-form and next step 0.010, join 0.250");
}

TEST(a_phase_without_an_end_goes_with_the_next_one)
{
    struct bill bill;
    struct bill_sum sum;

    bill_begin(&bill, BILL_DECIDE, AT);
    bill_end_phase(&bill, BILL_STOP, AT + 300, -1);
    bill_end_phase(&bill, BILL_MEET, AT + 310, -1);
    bill_end_phase(&bill, BILL_START, AT + 315, -1);
    bill_end_phase(&bill, BILL_FIRST_STEP, AT + 2315, 3);
    expect_text(&bill, "decide and stop 0.300, meet 0.010, start 0.005, "
                       "import and init and first step 2.000");
    bill_add_up(&sum, &bill);
    assert_int_equal(sum.unknown, 1u << BILL_DETECT);
}

TEST(what_nothing_tells_is_unknown_and_no_time)
{
    struct bill bill;
    struct bill_sum sum;

    bill_begin(&bill, BILL_MEET, AT);
    bill_end_phase(&bill, BILL_MEET, AT + 4, -1);
    bill_end_phase(&bill, BILL_START, AT + 9, -1);
    expect_text(&bill, "meet 0.004, start 0.005");
    bill_add_up(&sum, &bill);
    assert_int_equal(sum.total_ms, 9);
    assert_int_equal(sum.unknown,
                     1u << BILL_IMPORT | 1u << BILL_INIT | 1u << BILL_FIRST_STEP);
}

TEST(what_ends_first_comes_first)
{
    struct bill bill;

    bill_begin(&bill, BILL_DECIDE, AT);
    bill_end_phase(&bill, BILL_DECIDE, AT + 30, -1);
    bill_end_phase(&bill, BILL_STOP, AT + 10, -1);
    bill_end_phase(&bill, BILL_MEET, AT + 31, -1);
    expect_text(&bill, "stop 0.010, decide 0.020, meet 0.001");
}

/* Times are cut to milliseconds, and a worker may report a wrong time of its step. */
TEST(no_time_lies_before_the_beginning)
{
    struct bill bill;

    bill_begin(&bill, BILL_DETECT, AT);
    bill_end_phase(&bill, BILL_DETECT, AT - 1, -1);
    bill_end_phase(&bill, BILL_DECIDE, 0, -1);
    bill_end_phase(&bill, BILL_FIRST_STEP, AT + 5, -1);
    expect_text(&bill,
                "detect 0.000, decide 0.000, "
                "stop and meet and start and import and init and first step 0.005");
}

TEST(an_import_ends_no_later_than_the_first_step_of_its_rank)
{
    static const struct {
        uint64_t hello_ms, first_step_ms;
    } workers[] = {{AT + 12, AT + 10}, {AT + 31, AT + 30}, {AT + 5, AT + 20}};
    struct bill bill;
    uint64_t import_ms = 0;

    for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
        const uint64_t end_ms = bill_import_end(workers[i].hello_ms,
                                                workers[i].first_step_ms);

        import_ms = end_ms > import_ms ? end_ms : import_ms;
    }
    bill_begin(&bill, BILL_IMPORT, AT);
    bill_end_phase(&bill, BILL_FIRST_STEP, AT + 30, 1);
    bill_end_phase(&bill, BILL_IMPORT, import_ms, 1);
    expect_text(&bill, "import 0.030, init and first step 0.000");
    assert_int_equal(bill_import_end(AT + 4, 0), AT + 4); /* no step was reported */
    assert_int_equal(bill_import_end(0, AT + 4), 0);      /* no message came */
}

TEST(who_has_imported_was_started)
{
    struct bill bill;

    bill_begin(&bill, BILL_START, AT);
    bill_end_phase(&bill, BILL_START, AT + 9, -1);
    bill_end_phase(&bill, BILL_FIRST_STEP, AT + 7, 0);
    bill_end_phase(&bill, BILL_IMPORT, AT + 6, 0);
    expect_text(&bill, "start 0.006, import 0.000, init and first step 0.001");
}

TEST(the_longest_part_is_found)
{
    struct bill bill;
    struct bill_sum sum;

    bill_begin(&bill, BILL_MEET, AT);
    bill_add_up(&sum, &bill);
    assert_null(bill_longest(&sum));
    bill_end_phase(&bill, BILL_MEET, AT + 4, -1);
    bill_end_phase(&bill, BILL_IMPORT, AT + 50, 5);
    bill_end_phase(&bill, BILL_FIRST_STEP, AT + 60, 1);
    bill_add_up(&sum, &bill);
    assert_int_equal(bill_longest(&sum)->phases, 1u << BILL_START | 1u << BILL_IMPORT);
    assert_int_equal(bill_longest(&sum)->rank, 5);
}

TEST(lost_steps_are_those_that_are_made_again)
{
    assert_int_equal(bill_lost_steps(57, 51), 7); /* it continued from a checkpoint */
    assert_int_equal(bill_lost_steps(57, 57), 1);
    assert_int_equal(bill_lost_steps(57, 58), 0);
    assert_int_equal(bill_lost_steps(57, 0), 58);
    assert_int_equal(bill_lost_steps(-1, 4), -1);
    assert_int_equal(bill_lost_steps(4, -1), -1);
}

TEST(programs_are_told_the_same)
{
    uint8_t json[512];
    struct ct_writer out;
    struct bill bill;
    struct bill_sum sum;

    bill_begin(&bill, BILL_MEET, AT);
    bill_end_phase(&bill, BILL_MEET, AT + 4, -1);
    bill_end_phase(&bill, BILL_INIT, AT + 10, 2);
    bill_add_up(&sum, &bill);
    ct_writer_init(&out, json, sizeof json);
    bill_write_parts(&out, &sum);
    bill_write_phases(&out, sum.unknown);
    bill_write_phases(&out, 0);
    ct_write_u8(&out, 0);
    assert_true(ct_write_end(&out) > 0);
    assert_string_equal(
        (const char *)json,
        "[{\"phases\":[\"meet\"],\"ms\":4,\"rank\":null},"
        "{\"phases\":[\"start\",\"import\",\"init\"],\"ms\":6,\"rank\":2}]"
        "[\"first step\"][]");
}
