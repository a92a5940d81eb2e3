/* SPDX-License-Identifier: Apache-2.0 */
/* How the load of a rank differs from that of the others on its machine. */
#include <string.h>
#include <unistd.h>

#include "agent/watch/rank_load.h"
#include "tests/lib/test.h"

#define SECOND UINT64_C(1000000000)

TEST(what_is_worse_than_the_median_of_the_others_is_told)
{
    struct rank_rates rates[4] = {
        {.mhz = 3000}, {.mhz = 3000}, {.mhz = 1500}, {.mhz = 3100}};
    char text[RANK_LOAD_TEXT_MAX];

    rates[2].wait = 0.125;
    rates[2].steal = 0.5;
    rates[2].faults = 40;
    rates[2].resent = 12;
    rates[1].wait = 0.9; /* one other rank alone is no evidence */
    rank_load_differs(text, rates, 4, 2);
    assert_string_equal(
        text,
        "ready to run but without a CPU 12.5 % of the time (others 0.0); its CPU "
        "taken by the hypervisor 50.0 % of the time (others 0.0); its CPU at 1500 "
        "MHz (others 3000); 40 pages a second from the disk (others 0); 12 TCP "
        "segments "
        "a second sent again (others 0)");
    rank_load_differs(text, rates, 4, 0);
    assert_string_equal(text, "");
}

TEST(a_clock_that_is_not_known_is_not_compared)
{
    const struct rank_rates rates[2] = {{.mhz = 0}, {.mhz = 3000}};
    char text[RANK_LOAD_TEXT_MAX];

    rank_load_differs(text, rates, 2, 0);
    assert_string_equal(text, "");
    rank_load_differs(text, rates, 2, 1);
    assert_string_equal(text, "");
}

TEST(a_slower_gpu_is_told_with_the_reason_and_its_last_error)
{
    struct rank_rates rates[3] = {{.gpu = {.mhz = 1980, .max_mhz = 1980, .xid = -1}},
                                  {.gpu = {.mhz = 1200, .max_mhz = 1980, .slow = 0x44}},
                                  {.gpu = {.mhz = 1965, .max_mhz = 1980, .xid = -1}}};
    char text[RANK_LOAD_TEXT_MAX];

    rank_load_differs(text, rates, 3, 1);
    assert_string_equal(text, "its GPU at 1200 of 1980 MHz (others 1965) (power limit, "
                              "heat); whether its GPU had an Xid is not known");
    rates[1].gpu.xid = 63;
    rates[1].gpu.slow = 0;
    rank_load_differs(text, rates, 3, 1);
    assert_string_equal(text,
                        "its GPU at 1200 of 1980 MHz (others 1965); Xid 63 of its GPU");
    rates[1].gpu.xid = RANK_GPU_NO_XID;
    rank_load_differs(text, rates, 3, 1);
    assert_string_equal(text, "its GPU at 1200 of 1980 MHz (others 1965)");
    rank_load_differs(text, rates, 3, 0);
    assert_string_equal(text, "");
    rates[1].gpu.slow = 0x1 | 0x40; /* it has no work: that is no reason */
    rank_load_differs(text, rates, 3, 1);
    assert_string_equal(text, "");
    rates[1].gpu.slow = 0;
    rates[0].gpu = rates[2].gpu = (struct rank_gpu){0}; /* nothing to compare with */
    rank_load_differs(text, rates, 3, 1);
    assert_string_equal(text, "");
}

TEST(the_largest_figures_fit)
{
    const struct rank_rates rates[3] = {
        {.wait = 1e6,
         .steal = 1e6,
         .faults = 1e12,
         .resent = 1e12,
         .mhz = 1,
         .gpu = {.mhz = 1, .max_mhz = 4e9, .slow = UINT32_MAX - 1, .xid = INT32_MAX}},
        {.mhz = 1e9, .gpu.mhz = 4e9},
        {.mhz = 1e9, .gpu.mhz = 4e9}};
    char text[RANK_LOAD_TEXT_MAX];

    rank_load_differs(text, rates, 3, 0);
    assert_non_null(strstr(text, "from the disk (others 0)"));
    assert_non_null(strstr(text, "sent again (others 0)"));
    assert_non_null(strstr(text, "heat, power brake); Xid 2147483647 of its GPU"));
}

TEST(rates_are_of_one_process_and_one_cpu)
{
    const struct rank_load before = {.pid = 7,
                                     .at_ns = SECOND,
                                     .wait_ns = SECOND,
                                     .faults = 5,
                                     .resent = 8,
                                     .cpu = 1,
                                     .steal_ms = 10};
    struct rank_load after = {.pid = 7,
                              .at_ns = 3 * SECOND,
                              .wait_ns = 2 * SECOND,
                              .faults = 25,
                              .resent = 28,
                              .cpu = 1,
                              .steal_ms = 510,
                              .khz = 2000000};
    struct rank_rates rates;

    rank_load_rates(&rates, &before, &after);
    assert_true(rates.wait == 0.5 && rates.faults == 10 && rates.steal == 0.25 &&
                rates.resent == 10 && rates.mhz == 2000);
    after.cpu = 2;
    rank_load_rates(&rates, &before, &after);
    assert_true(rates.steal == 0 && rates.wait == 0.5);
    after.pid = 8;
    rank_load_rates(&rates, &before, &after);
    assert_true(rates.wait == 0 && rates.mhz == 0);
}

TEST(segments_that_were_sent_again_are_found_by_their_name)
{
    assert_int_equal(rank_load_find_resent("Ip: Forwarding\nIp: 1\n"
                                           "Tcp: RtoMin MaxConn RetransSegs InErrs\n"
                                           "Tcp: 200 -1 50441 7\nUdp: A\nUdp: 1\n"),
                     50441);
    assert_int_equal(rank_load_find_resent("Tcp: RtoMin RetransSegs\nTcp: 200\n"), 0);
    assert_int_equal(rank_load_find_resent("Tcp: RtoMin\nTcp: 200\n"), 0);
    assert_int_equal(rank_load_find_resent("Tcp: RetransSegs\n"), 0);
    assert_int_equal(rank_load_find_resent("Tcp: RetransSegs"), 0);
    assert_int_equal(rank_load_find_resent(""), 0);
}

TEST(a_process_is_looked_at_and_one_that_is_gone_is_not_known)
{
    static const char stat[] = "cpu 0\ncpu0 1 2 3 4 5 6 7 800 9 10\n";
    struct rank_load load;

    rank_load_look(&load, getpid(), stat);
    assert_int_equal(load.pid, getpid());
    assert_true(load.at_ns > 0 && load.cpu >= 0 &&
                load.cpu < sysconf(_SC_NPROCESSORS_CONF));
    assert_true(load.cpu != 0 ||
                load.steal_ms == 800 * 1000 / (uint64_t)sysconf(_SC_CLK_TCK));
    rank_load_look(&load, 0x7ffffff0, stat);
    assert_int_equal(load.pid, 0);
}
