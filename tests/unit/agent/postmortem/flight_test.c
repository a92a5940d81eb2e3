/* SPDX-License-Identifier: Apache-2.0 */
/* The record that a process writes about its calls, and what is printed of it after a failure. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/postmortem/flight.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/include/ctrun.h"

static struct ct_flight raw;  /* as read from the process */
static struct flight *flight; /* decoded */

static int setup(void **state)
{
    flight = calloc(1, sizeof *flight);
    return flight ? 0 : -1;
}

static int teardown(void **state)
{
    free(flight);
    return 0;
}

static void read_back(int fd)
{
    assert_int_equal(pread(fd, &raw, sizeof raw, 0), sizeof raw);
    assert_int_equal(flight_decode(&raw, sizeof raw, flight), 0);
}

static uint64_t begin(uint32_t group, uint64_t sequence)
{
    const struct ct_flight_call call = {.name = "all_reduce",
                                        .now_ns = ct_now_ns(),
                                        .group = group,
                                        .sequence = sequence,
                                        .count = 1000 + sequence,
                                        .dtype = CTRUN_F32};

    return ct_flight_begin(&call);
}

/* In a process of its own, because a process has only one record. */
TEST(calls_are_read_as_they_were_written)
{
    const uint32_t world = ct_flight_add_group("ctrun/group/1.0.0", 2, 4);
    struct flight_place place;
    uint64_t number = 0;

    assert_int_equal(world, 1);
    for (uint64_t sequence = 1; sequence <= 3000; sequence++) {
        number = begin(world, sequence);
        assert_int_equal(number, sequence);
        if (sequence < 3000)
            ct_flight_end(number, 0);
    }
    ct_flight_end(1, -5); /* a later call has its entry */
    read_back(ct_flight_open());
    assert_int_equal(flight->total, 3000);
    assert_int_equal(flight->call_count, CT_FLIGHT_ENTRIES);
    assert_int_equal(flight->calls[0].sequence, 3000 - CT_FLIGHT_ENTRIES + 1);
    assert_int_equal(flight->calls[0].count, 1000 + flight->calls[0].sequence);
    assert_string_equal(flight->calls[0].name, "all_reduce");
    assert_string_equal(flight->calls[0].dtype, "f32");
    assert_string_equal(flight->groups[flight->calls[0].group].name,
                        "ctrun/group/1.0.0");
    for (int i = 0; i < flight->call_count; i++)
        assert_int_equal(flight->calls[i].result, 0);
    assert_true(flight_find_place(&place, flight));
    assert_int_equal(place.in.sequence, 3000);
    assert_int_equal(place.left.sequence, 2999);
    ct_flight_end(number, CTRUN_E_PEER_LOST);
    read_back(ct_flight_open());
    assert_true(flight_find_place(&place, flight));
    assert_int_equal(place.in.sequence, 0);
    /* A failed call does not count as left. */
    assert_int_equal(place.left.sequence, 2999);
}

/* The record of its parent does not change. */
TEST(a_child_writes_a_record_of_its_own)
{
    pid_t child;
    int status;

    read_back(ct_flight_open());
    if ((child = fork()) == 0) {
        const uint32_t group = ct_flight_add_group("child", 0, 1);

        _exit(group == 1 && begin(group, 1) == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(raw.calls, 3000);
    read_back(ct_flight_open());
    assert_int_equal(raw.calls, 3000);
}

TEST(what_is_no_record_is_refused_and_what_is_torn_left_out)
{
    memset(&raw, 0, sizeof raw);
    assert_int_equal(flight_decode(&raw, sizeof raw, flight), -EBADMSG);
    raw.magic = CT_FLIGHT_MAGIC;
    raw.version = CT_FLIGHT_VERSION + 1;
    assert_int_equal(flight_decode(&raw, sizeof raw, flight), -EBADMSG);
    raw.version = CT_FLIGHT_VERSION;
    assert_int_equal(flight_decode(&raw, sizeof raw - 1, flight), -EBADMSG);
    raw.calls = UINT64_MAX;
    raw.group[3].id = 5; /* its number does not belong to this place */
    assert_int_equal(flight_decode(&raw, sizeof raw, flight), 0);
    assert_int_equal(flight->call_count, 0);
    assert_int_equal(flight->group_count, 0);
    raw.calls = 3;
    for (unsigned i = 0; i < 3; i++)
        raw.entry[i] = (struct ct_flight_entry){.number = i == 1 ? 0 : i + 1,
                                                .group = 77,
                                                .dtype = 99,
                                                .name = "a\x1b[2J\"\\"};
    assert_int_equal(flight_decode(&raw, sizeof raw, flight), 0);
    assert_int_equal(flight->call_count, 2);
    assert_int_equal(flight->calls[0].group, -1);
    assert_string_equal(flight->calls[0].name, "a??2J??");
    assert_string_equal(flight->calls[0].dtype, "?");
}

/* ---- Words --------------------------------------------------------------------------- */

static struct flight_place place_of(int rank, uint64_t in, uint64_t left)
{
    struct flight_place place = {.rank = rank, .group = "world"};

    place.in = (struct flight_call){.sequence = in,
                                    .count = 1000,
                                    .begin_ns = 1000000000,
                                    .name = "all_reduce",
                                    .dtype = "f32"};
    place.left = (struct flight_call){
        .sequence = left, .end_ns = 900000000, .name = "barrier"};
    if (!in)
        place.in = (struct flight_call){0};
    return place;
}

TEST(the_rank_that_others_wait_for_is_named)
{
    const struct flight_place places[] = {place_of(0, 51, 50), place_of(1, 51, 50),
                                          place_of(2, 0, 50), place_of(3, 51, 50)};
    char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX];

    assert_int_equal(flight_format_places(lines, places, 4, 3000000000), 2);
    assert_string_equal(lines[0],
                        "ranks 0, 1, 3: in all_reduce 51 (1000 f32) for 2.0 s");
    assert_string_equal(
        lines[1], "rank 2: left barrier 50 2.1 s ago, has not entered all_reduce 51");
}

TEST(a_rank_whose_call_has_failed_has_entered_it)
{
    struct flight record = {.rank = 0, .call_count = 3};
    struct flight_call calls[] = {
        {.sequence = 50, .begin_ns = 1, .end_ns = 500000000, .name = "barrier"},
        {.sequence = 51,
         .begin_ns = 1,
         .end_ns = 900000000,
         .result = CTRUN_E_PEER_LOST,
         .name = "all_reduce"},
        {.sequence = 52,
         .begin_ns = 1,
         .end_ns = 950000000,
         .result = CTRUN_E_PEER_LOST,
         .name = "barrier"}};
    struct flight_place places[] = {place_of(0, 0, 0), place_of(1, 51, 50)};
    char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX];

    memcpy(record.calls, calls, sizeof calls);
    memcpy(record.groups[0].name, "world", sizeof "world");
    assert_true(flight_find_place(&places[0], &record));
    assert_int_equal(flight_format_places(lines, places, 2, 3000000000), 2);
    assert_string_equal(lines[0], "rank 0: failed in all_reduce 51 2.1 s ago");
}

TEST(many_ranks_are_counted)
{
    struct flight_place places[20];
    char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX];

    for (int i = 0; i < 20; i++)
        places[i] = place_of(i, i == 7 ? 0 : 2, i == 7 ? 0 : 1);
    assert_int_equal(flight_format_places(lines, places, 20, 1100000000), 2);
    assert_string_equal(lines[0], "ranks 0, 1, 2, 3, 4, 5, 6, 8 and 11 more: in "
                                  "all_reduce 2 (1000 f32) for 0.1 s");
    assert_string_equal(lines[1],
                        "rank 7: left no collective yet, has not entered all_reduce 2");
    for (int i = 0; i < 20; i++)
        places[i] = place_of(i, (uint64_t)i + 1, 0);
    assert_int_equal(flight_format_places(lines, places, 20, 0), FLIGHT_LINES_MAX);
}

TEST(text_and_trace_have_every_call)
{
    struct ct_buf text;

    memset(&raw, 0, sizeof raw);
    raw.magic = CT_FLIGHT_MAGIC;
    raw.version = CT_FLIGHT_VERSION;
    raw.calls = 2;
    raw.group[0].id = 1;
    memcpy(raw.group[0].name, "world", 6);
    for (unsigned i = 0; i < 2; i++)
        raw.entry[i] = (struct ct_flight_entry){.number = i + 1,
                                                .begin_ns = 1000000000 + i,
                                                .end_ns = i ? 0 : 1500000000,
                                                .sequence = i + 1,
                                                .count = 8,
                                                .group = 1,
                                                .dtype = CTRUN_F64,
                                                .name = "all_reduce"};
    assert_int_equal(flight_decode(&raw, sizeof raw, flight), 0);
    flight->rank = 3;
    ct_buf_init(&text, 1 << 16);
    assert_int_equal(flight_format(&text, flight, 2000000000), 0);
    assert_int_equal(flight_begin_trace(&text), 0);
    assert_int_equal(flight_add_trace(&text, flight, 2000000000, true), 0);
    assert_int_equal(flight_end_trace(&text), 0);
    assert_int_equal(ct_buf_append(&text, "", 1), 0);
    assert_string_equal((const char *)ct_buf_data(&text),
                        "rank 3: the last 2 of 2 calls\n"
                        "      1.000000 s ago  all_reduce            1           8 f64 "
                        "      0.500000 s  done  world\n"
                        "      1.000000 s ago  all_reduce            2           8 f64 "
                        "      1.000000 s  under way  world\n"
                        "{\"traceEvents\":[\n"
                        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":3,\"args\":{"
                        "\"name\":\"rank 3\"}},\n"
                        "{\"ph\":\"X\",\"name\":\"all_reduce\",\"pid\":3,\"tid\":1,"
                        "\"ts\":1000000.000,\"dur\":500000.000,"
                        "\"args\":{\"collective\":1,\"count\":8,\"dtype\":\"f64\","
                        "\"group\":\"world\",\"result\":0,\"is_over\":true}},\n"
                        "{\"ph\":\"X\",\"name\":\"all_reduce\",\"pid\":3,\"tid\":1,"
                        "\"ts\":1000000.001,\"dur\":999999.999,"
                        "\"args\":{\"collective\":2,\"count\":8,\"dtype\":\"f64\","
                        "\"group\":\"world\",\"result\":0,\"is_over\":false}}"
                        "\n]}\n");
    ct_buf_deinit(&text);
}

int main(void)
{
    return test_run(setup, teardown);
}
