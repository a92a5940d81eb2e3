/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON that torch's fr_trace_json returns. */
#include "agent/recorder/json_recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

#define ENTRY(number, more)                                                            \
    "{\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],\"is_p2p\":false,"          \
    "\"collective_seq_id\":" #number ",\"p2p_seq_id\":0,"                              \
    "\"profiling_name\":\"gloo:all_reduce\",\"time_created_ns\":1700000000000000000,"  \
    "\"input_sizes\":[[3,4],[2]],\"input_dtypes\":[\"Float\",\"Long\"]," more "}"

#define STATUS                                                                         \
    "\"pg_status\":{\"0\":{\"last_enqueued_collective\":\"8\","                        \
    "\"last_started_collective\":\"-1\",\"last_completed_collective\":\"7\"}}"

static int read_text(struct recorder_view *view, const char *text)
{
    return json_recorder_read(view, "", text, strlen(text));
}

TEST(the_oldest_call_that_is_not_complete_is_waited_in)
{
    struct recorder_view view;

    assert_int_equal(
        read_text(&view,
                  "{\"entries\":[" ENTRY(6, "\"state\":\"completed\"") "," ENTRY(
                      7, "\"state"
                         "\":"
                         "\"schedu"
                         "led\","
                         "\"retire"
                         "d\":"
                         "true") "," ENTRY(8, "\"state\":\"scheduled\",\"retired\":"
                                              "false") "," ENTRY(9, "\"state\":"
                                                                    "\"scheduled"
                                                                    "\"") "]"
                                                                          "," STATUS
                                                                          "}"),
        0);
    assert_int_equal(view.oldest.number, 8);
    assert_int_equal(view.newest.number, 9);
    assert_string_equal(view.oldest.op, "gloo:all_reduce");
    assert_string_equal(view.oldest.group, "0");
    assert_string_equal(view.oldest.title, "default_pg");
    assert_string_equal(view.oldest.sizes, "Float[3,4] Long[2]");
    assert_true(view.oldest.entered_ns / 1000000 == 1700000000000);
    assert_int_equal(recorder_view_find(&view, "0"), 8);
    assert_int_equal(recorder_view_find(&view, "1"), -1);
    assert_int_equal(view.recent_count, 4);
    assert_int_equal(recorder_view_recent(&view, "0", 6)->number, 6);
    assert_null(recorder_view_recent(&view, "0", 5));
    assert_null(recorder_view_recent(&view, "1", 6));
}

TEST(the_first_group_is_known_without_a_call)
{
    struct recorder_view view;

    assert_int_equal(read_text(&view, "{" STATUS "}"), 0);
    assert_int_equal(recorder_view_find(&view, "0"), 8);
    assert_string_equal(view.oldest.op, "");
}

TEST(a_group_has_the_name_that_its_calls_tell)
{
    struct recorder_view view;

    assert_int_equal(
        read_text(&view,
                  "{\"entries\":[{\"pg_id\":3,\"process_group\":[\"17\",\"mesh\"]}],"
                  "\"pg_status\":{\"3\":{\"last_enqueued_collective\":5},"
                  "\"4\":{\"last_enqueued_collective\":6}}}"),
        0);
    assert_int_equal(view.group_count, 1);
    assert_int_equal(recorder_view_find(&view, "17"), 5);
}

TEST(two_recorders_are_one_view)
{
    struct recorder_view view, other;
    static const char text[] = "{\"entries\":[" ENTRY(
        5, "\"state\":\"started\"") "]," STATUS "}";

    assert_int_equal(read_text(&view, "{" STATUS "}"), 0);
    assert_int_equal(json_recorder_read(&other, "nccl:", text, sizeof text - 1), 0);
    recorder_view_add(&view, &other);
    assert_string_equal(view.oldest.group, "nccl:0");
    assert_int_equal(view.oldest.number, 5);
    assert_int_equal(recorder_view_find(&view, "nccl:0"), 8);
    assert_int_equal(recorder_view_find(&view, "0"), 8);
    assert_int_equal(view.group_count, 2);
    assert_int_equal(recorder_view_recent(&view, "nccl:0", 5)->number, 5);
}

TEST(what_is_no_answer_is_refused)
{
    struct recorder_view view;

    assert_int_equal(read_text(&view, ""), -EBADMSG);
    assert_int_equal(read_text(&view, "[1]"), -EBADMSG);
    assert_int_equal(read_text(&view, "{\"entries\":[}"), -EBADMSG);
    assert_int_equal(read_text(&view, "{\"entries\":{},\"pg_status\":[3]}"), 0);
    assert_int_equal(view.group_count, 0);
    assert_int_equal(read_text(&view, "{\"entries\":[1,\"x\",[],{}]}"), 0);
    assert_string_equal(view.oldest.op, "");
}

TEST(texts_are_made_plain_and_cut)
{
    struct recorder_view view;

    assert_int_equal(
        read_text(&view, "{\"entries\":[{\"profiling_name\":\"a\\u001b[31m\\nb\","
                         "\"process_group\":[\"01234567890123456789012345678901234567"
                         "89012345678901234567890\",7],"
                         "\"input_sizes\":[[1e300],[3]]}]}"),
        0);
    assert_string_equal(view.oldest.op, "a?[31m?b");
    assert_int_equal(strlen(view.oldest.group), RECORDER_NAME_MAX - 1);
    assert_string_equal(view.oldest.title, "");
    assert_string_equal(view.oldest.sizes, ""); /* no room for the first */
}

/* Its number is that of another order than the collectives of the group. */
TEST(a_call_of_a_pair_is_in_no_group)
{
    struct recorder_view view;

    assert_int_equal(
        read_text(&view, "{\"entries\":[{\"pg_id\":0,\"process_group\":[\"0\",\"x\"],"
                         "\"is_p2p\":true,\"collective_seq_id\":2,\"p2p_seq_id\":8,"
                         "\"profiling_name\":\"nccl:recv\"}]," STATUS "}"),
        0);
    assert_int_equal(view.oldest.number, 8);
    assert_string_equal(view.oldest.group, "");
    assert_string_equal(view.oldest.title, "x");
    assert_null(recorder_view_recent(&view, "0", 8));
    assert_int_equal(recorder_view_find(&view, "0"), 8);
}

TEST(collectives_are_given_in_their_order_and_nothing_else)
{
    static const char text[] =
        "{\"entries\":[" ENTRY(6, "\"state\":\"completed\"") ",7," ENTRY(
            7,
            "\"state\":\"scheduled\"") ","
                                       "{\"process_group\":[\"0\",\"x\"],\"is_p2p\":"
                                       "true,\"collective_seq_id\":8,"
                                       "\"time_created_ns\":9},"
                                       "{\"process_group\":[\"1\",\"x\"],\"collective_"
                                       "seq_id\":9,\"time_created_ns\":9},"
                                       "{\"collective_seq_id\":10,\"time_created_ns\":"
                                       "9},"
                                       "{\"process_group\":[\"0\",\"x\"],\"collective_"
                                       "seq_id\":0,\"time_created_ns\":9},"
                                       "{\"process_group\":[\"0\",\"x\"],\"collective_"
                                       "seq_id\":11}]}";
    struct straggler_call *calls, *others;

    assert_int_equal(json_recorder_read_calls(&calls, "", text, strlen(text)), 3);
    assert_true(calls[0].number == 6 && calls[1].number == 7 && calls[2].number == 9);
    assert_true(calls[0].entered_ns / 1000000 == 1700000000000);
    assert_true(calls[0].group == calls[1].group && calls[2].group != calls[0].group);
    assert_int_equal(json_recorder_read_calls(&others, "nccl:", text, strlen(text)), 3);
    assert_true(others[0].group != calls[0].group);
    free(calls);
    free(others);
    assert_int_equal(json_recorder_read_calls(&calls, "", "{}", 2), 0);
    assert_null(calls);
    assert_int_equal(json_recorder_read_calls(&calls, "", "{", 1), -EBADMSG);
    assert_null(calls);
}

TEST(no_memory_for_the_calls_is_told)
{
    static const char text[] = "{\"entries\":[" ENTRY(6,
                                                      "\"state\":\"completed\"") "]}";
    struct straggler_call *calls;

    ct_alloc_fail_at(1);
    assert_int_equal(json_recorder_read_calls(&calls, "", text, strlen(text)), -ENOMEM);
    assert_null(calls);
    ct_alloc_fail_at(0);
}

TEST(the_last_calls_are_a_trace)
{
    static const char answer[] =
        "{\"entries\":[" ENTRY(6, "\"state\":\"completed\"") "," ENTRY(
            7, "\"state\":\"completed\",\"time_discovered_completed_ns\":"
               "1700000000000256000") "," ENTRY(8, "\"state\":\"scheduled\"") "]}";
    struct ct_buf out;

    ct_buf_init(&out, 4096);
    assert_int_equal(json_recorder_add_trace(&out, 1, 2, 1700000000000009000, answer,
                                             sizeof answer - 1, false),
                     0);
    assert_int_equal(ct_buf_append(&out, "", 1), 0);
    assert_string_equal(
        (const char *)ct_buf_data(&out),
        ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":"
        "\"rank 1\"}},\n"
        "{\"name\":\"gloo:all_reduce\",\"pid\":1,\"tid\":1,\"ts\":1700000000000000.000,"
        "\"ph\":\"X\",\"dur\":256.000,\"args\":{\"number\":7,\"is_over\":true,"
        "\"group\":"
        "\"default_pg\",\"sizes\":\"Float[3,4] Long[2]\"}},\n"
        "{\"name\":\"gloo:all_reduce\",\"pid\":1,\"tid\":1,\"ts\":1700000000000000.000,"
        "\"ph\":\"X\",\"dur\":9.000,\"args\":{\"number\":8,\"is_over\":false,\"group\":"
        "\"default_pg\",\"sizes\":\"Float[3,4] Long[2]\"}}");
    ct_buf_consume(&out, ct_buf_length(&out));
    assert_int_equal(json_recorder_add_trace(&out, 1, 9, 0, "[", 1, true), -EBADMSG);
    assert_int_equal(ct_buf_length(&out), 0);
    ct_buf_deinit(&out);
}

TEST(a_call_whose_end_has_no_time_is_a_moment)
{
    static const char answer[] = "{\"entries\":[" ENTRY(6,
                                                        "\"state\":\"completed\"") "]}";
    struct ct_buf out;

    ct_buf_init(&out, 4096);
    assert_int_equal(json_recorder_add_trace(&out, 0, 1, 1700000000000009000, answer,
                                             sizeof answer - 1, true),
                     0);
    assert_int_equal(ct_buf_append(&out, "", 1), 0);
    assert_non_null(strstr((const char *)ct_buf_data(&out), "\"ph\":\"i\""));
    assert_null(strstr((const char *)ct_buf_data(&out), "\"dur\""));
    ct_buf_deinit(&out);
}
