/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options/chaos_plan.h"

static struct chaos_plan plan;
static struct ctrun_error error;

static int parse(const char *text)
{
    return chaos_plan_parse(&plan, text, strlen(text), "p", &error);
}

TEST(a_plan_is_read)
{
    static const struct chaos_line lines[] = {
        {false, 10000, 10000, true, {CT_FAULT_KILL, -1, SIGUSR1, 0, 0, 3}},
        {true, 30000, 60000, false, {CT_FAULT_STOP, 2, 0, 5000, 0, 4}},
        {false, 500, 500, false, {CT_FAULT_CUT, 1, 0, 3000, 0, 6}},
        {false, 60000, 120000, true, {CT_FAULT_SLOW, -1, 0, 10000, 100, 7}},
        {false, 0, 0, false, {CT_FAULT_FULL, 0, 0, 3600000, 0, 8}},
        {false, 1000, 1000, false, {CT_FAULT_KILL, 0, SIGKILL, 0, 0, 9}},
        {false, 2000, 2000, false, {CT_FAULT_SEVER, 3, 0, 0, 0, 10}},
        {false, 3000, 3000, true, {CT_FAULT_THROTTLE, -1, 0, 5000, 10 << 20, 11}},
        {false, 3000, 3000, false, {CT_FAULT_THROTTLE, 0, 0, 5000, 1024, 12}},
    };

    assert_int_equal(parse("seed 7\nend 2h\nat 10s kill rank=any signal=sigusr1\n"
                           "every 30s..60s\tstop rank=2 for=5s # as a swap does\n"
                           "  # nothing\n"
                           "at 500ms cut node=1 for=3s\r\n"
                           "at 1m..2m slow node=any by=100ms for=10s\n"
                           "at 0s full for=1h node=0\n"
                           "at 1s kill rank=0\n"
                           "at 2s sever rank=3\n"
                           "at 3s throttle node=any to=10M for=5s\n"
                           "at 3s throttle node=0 to=1024 for=5s"),
                     0);
    assert_int_equal(plan.seed, 7);
    assert_int_equal(plan.end_ms, 7200000);
    assert_int_equal(plan.count, sizeof lines / sizeof *lines);
    for (int i = 0; i < plan.count; i++) {
        assert_int_equal(plan.lines[i].repeats, lines[i].repeats);
        assert_int_equal(plan.lines[i].from_ms, lines[i].from_ms);
        assert_int_equal(plan.lines[i].to_ms, lines[i].to_ms);
        assert_int_equal(plan.lines[i].is_any, lines[i].is_any);
        assert_int_equal(plan.lines[i].fault.kind, lines[i].fault.kind);
        assert_int_equal(plan.lines[i].fault.target, lines[i].fault.target);
        assert_int_equal(plan.lines[i].fault.signal, lines[i].fault.signal);
        assert_int_equal(plan.lines[i].fault.for_ms, lines[i].fault.for_ms);
        assert_int_equal(plan.lines[i].fault.by, lines[i].fault.by);
        assert_int_equal(plan.lines[i].fault.line, lines[i].fault.line);
    }
}

TEST(what_is_wrong_is_told_with_its_line)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "p:0: the plan has no fault"},
        {"seed 1\n\n", "p:2: the plan has no fault"},
        {"\nfoo", "p:2: 'foo': want at, every, seed or end"},
        {"seed", "p:1: want seed NUMBER"},
        {"end 1s 2s", "p:1: want end TIME"},
        {"seed -1", "p:1: seed -1: not a number"},
        {"at 1s", "p:1: want at TIME FAULT ..."},
        {"at 10 kill rank=0",
         "p:1: '10': want a time from 0ms to 10080m, such as 500ms, 10s or 2m"},
        {"at 8d kill rank=0",
         "p:1: '8d': want a time from 0ms to 10080m, such as 500ms, 10s or 2m"},
        {"at 169h kill rank=0",
         "p:1: '169h': want a time from 0ms to 10080m, such as 500ms, 10s or 2m"},
        {"end 1h\nevery 0s..1s kill rank=0",
         "p:2: '0s': want a time from 10ms to 10080m, such as 500ms, 10s or 2m"},
        {"at 2s..1s kill rank=0", "p:1: 2s..1s: the end is before the beginning"},
        {"at 1s explode rank=0", "p:1: no fault 'explode': kill, stop, cut, slow, "
                                 "full, sever, quota or throttle"},
        {"at 1s kill", "p:1: kill needs rank="},
        {"at 1s stop rank=1", "p:1: stop needs for="},
        {"at 1s slow node=1 for=1s", "p:1: slow needs by="},
        {"at 1s kill node=1", "p:1: kill does not take 'node'"},
        {"at 1s kill rank", "p:1: 'rank': want rank=..."},
        {"at 1s kill rank=1 rank=2", "p:1: rank= is given twice"},
        {"at 1s kill rank=x", "p:1: 'x': want a number from 0 on, or any"},
        {"at 1s kill rank=-1", "p:1: '-1': want a number from 0 on, or any"},
        {"at 1s kill rank=1 signal=X", "p:1: signal=X: there is no such signal"},
        {"at 1s kill rank=1 signal=STOP",
         "p:1: signal=STOP stops the process and nothing continues it: want stop "
         "rank=N for=TIME"},
        {"at 1s stop rank=1 for=0s",
         "p:1: '0s': want a time from 1ms to 60m, such as 500ms, 10s or 2m"},
        {"at 1s slow node=1 for=1s by=2m",
         "p:1: '2m': want a time from 1ms to 1m, such as 500ms, 10s or 2m"},
        {"at 1s throttle node=1 for=1s", "p:1: throttle needs to="},
        {"at 1s throttle node=1 for=1s to=1023",
         "p:1: '1023': want bytes a second from 1K to 1G, such as 500K or 10M"},
        {"at 1s throttle node=1 for=1s to=2G",
         "p:1: '2G': want bytes a second from 1K to 1G, such as 500K or 10M"},
        {"at 1s throttle node=1 for=1s to=1MB",
         "p:1: '1MB': want bytes a second from 1K to 1G, such as 500K or 10M"},
        {"at 1s throttle node=1 for=1s to=M",
         "p:1: 'M': want bytes a second from 1K to 1G, such as 500K or 10M"},
        {"at 1s kill rank=1\nevery 1s kill rank=1\nat 1s kill rank=1",
         "p:2: every: the plan has no end; add a line such as: end 10m"},
        {"at 1s kill rank=1 a b c d e f g h i j", "p:1: more than 12 words"},
        {"at 1s\x01 kill",
         "p:1: the line is longer than 255 bytes, or has control characters"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(parse(rows[i].text), CTRUN_E_USAGE);
        assert_string_equal(error.text, rows[i].why);
    }
}

TEST(limits_of_a_plan_are_told)
{
    char text[CHAOS_PLAN_FILE_MAX_BYTES];
    size_t used = 0;

    memset(text, ' ', 256);
    text[256] = '\0';
    assert_int_equal(parse(text), CTRUN_E_USAGE);
    assert_int_equal(chaos_plan_parse(&plan, "a\0b", 3, "p", &error), CTRUN_E_USAGE);
    for (int i = 0; i <= CHAOS_PLAN_LINES_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "at 1s kill rank=0\n");
    assert_int_equal(parse(text), CTRUN_E_USAGE);
    assert_string_equal(error.text, "p:257: more than 256 faults");
}

/* ---- The schedule ------------------------------------------------------------------------ */

static int schedule(struct chaos_step **out, const char *text, uint32_t ranks,
                    uint32_t nodes)
{
    assert_int_equal(parse(text), 0);
    return chaos_plan_schedule(out, &plan, "p", ranks, nodes, &error);
}

static const char mixed[] = "seed 7\nend 10m\n"
                            "every 1s..9s kill rank=any\n"
                            "every 10s stop rank=any for=1s\n"
                            "at 3m..4m cut node=any for=3s\n";

TEST(the_same_seed_and_world_make_the_same_schedule)
{
    struct chaos_step *one, *two;
    const int count = schedule(&one, mixed, 8, 2);

    assert_true(count > 100);
    assert_int_equal(schedule(&two, mixed, 8, 2), count);
    assert_memory_equal(one, two, (size_t)count * sizeof *one);
    free(two);
    plan.seed = 8;
    (void)chaos_plan_schedule(&two, &plan, "p", 8, 2, &error);
    assert_memory_not_equal(one, two, 50 * sizeof *one);
    free(two);
    free(one);
}

TEST(a_schedule_is_in_order_and_within_its_bounds)
{
    struct chaos_step *steps;
    const int count = schedule(&steps, mixed, 8, 2);
    unsigned ranks = 0;
    int stops = 0;

    for (int i = 0; i < count; i++) {
        const struct ct_fault *fault = &steps[i].fault;

        assert_true(i == 0 || steps[i].at_ms >= steps[i - 1].at_ms);
        assert_true(steps[i].at_ms <= 600000);
        if (fault->kind == CT_FAULT_CUT) {
            assert_in_range(steps[i].at_ms, 180000, 240000);
            assert_in_range(fault->target, 0, 1);
        } else {
            assert_in_range(fault->target, 0, 7);
            ranks |= 1u << fault->target;
        }
        if (fault->kind == CT_FAULT_STOP)
            assert_int_equal(steps[i].at_ms, ++stops * 10000);
    }
    assert_int_equal(stops, 60);
    assert_int_equal(ranks, 0xff); /* "any" chose each of the eight ranks */
    free(steps);
}

TEST(another_line_behind_it_changes_nothing_for_a_line)
{
    struct chaos_step *one, *two;
    uint64_t at_ms = 0;

    assert_int_equal(schedule(&one, "at 1s..1h kill rank=any", 64, 1), 1);
    assert_int_equal(
        schedule(&two, "at 1s..1h kill rank=any\nat 1s..1h kill rank=any", 64, 1), 2);
    for (int i = 0; i < 2; i++)
        if (two[i].fault.line == 1)
            at_ms = two[i].at_ms;
    assert_int_equal(at_ms, one->at_ms);
    assert_int_not_equal(two[0].at_ms, two[1].at_ms);
    free(one);
    free(two);
}

TEST(a_target_that_is_not_there_and_too_many_faults_are_told)
{
    struct chaos_step *steps;

    assert_int_equal(schedule(&steps, "\nat 1s kill rank=8", 8, 2), CTRUN_E_USAGE);
    assert_string_equal(error.text, "p:2: rank=8: the world has ranks 0 to 7");
    assert_int_equal(schedule(&steps, "at 1s cut node=2 for=1s", 8, 2), CTRUN_E_USAGE);
    assert_int_equal(schedule(&steps, "end 1h\nevery 10ms kill rank=0", 1, 1),
                     CTRUN_E_USAGE);
    assert_string_equal(error.text, "p:2: more than 10000 faults up to the end");
    assert_null(steps);
}

TEST(a_fault_is_written_as_a_plan_has_it)
{
    static const char *const rows[] = {
        "kill rank=3 signal=KILL", "stop rank=2 for=5000ms",
        "cut node=1 for=3000ms",   "slow node=0 by=100ms for=10000ms",
        "full node=0 for=1ms",     "quota node=2 for=1ms"};
    char text[CHAOS_STEP_TEXT_MAX + 8];
    char back[CHAOS_STEP_TEXT_MAX];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "at 1s %s", rows[i]);
        assert_int_equal(parse(text), 0);
        chaos_plan_format(back, &plan.lines[0].fault);
        assert_string_equal(back, rows[i]);
    }
}
