/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/event.h"

TEST(an_event_is_one_escaped_json_line)
{
    char path[] = "/tmp/ctrun-event-XXXXXX";
    char line[512];
    struct ct_event event;
    FILE *file;
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ct_event_open(path), 0);
    ct_event_begin(&event, "worker_ended");
    ct_event_int(&event, "rank", -3);
    ct_event_str(&event, "text", "a\"b\\c\n\xff\xc3\xa9");
    ct_event_raw(&event, "list", "[1,2]");
    ct_event_end(&event);
    ct_event_close();
    assert_non_null(file = fopen(path, "r"));
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    unlink(path);
    assert_int_equal(
        strncmp(line, "{\"event\":\"worker_ended\",\"version\":1,\"time_ns\":", 46), 0);
    assert_non_null(strstr(line, "\"rank\":-3,"
                                 "\"text\":\"a\\\"b\\\\c\\u000a\\ufffd\xc3\xa9\","
                                 "\"list\":[1,2]}\n"));
}

TEST(an_event_ends_with_whose_it_is_unless_it_says_it_itself)
{
    char path[] = "/tmp/ctrun-event-XXXXXX";
    char text[512];
    int fd = mkstemp(path);
    ssize_t n;

    assert_int_equal(ct_event_open(path), 0);
    ct_event_identify("run\"1", "node1");
    ct_event_emit("a", CT_INT("rank", 1));
    ct_event_emit("b", CT_STR("host", "node2"), CT_INT("rank", 1));
    ct_event_emit("c", CT_STR("run_id", "x"));
    ct_event_identify(NULL, NULL);
    ct_event_emit("d", CT_INT("rank", 1));
    ct_event_close();
    assert_true((n = read(fd, text, sizeof text - 1)) > 0);
    text[n] = '\0';
    close(fd);
    unlink(path);
    assert_non_null(
        strstr(text, "\"rank\":1,\"run_id\":\"run\\\"1\",\"host\":\"node1\"}\n"));
    assert_non_null(
        strstr(text, "\"host\":\"node2\",\"rank\":1,\"run_id\":\"run\\\"1\"}\n"));
    assert_non_null(strstr(text, "\"run_id\":\"x\",\"host\":\"node1\"}\n"));
    assert_non_null(strstr(text, "\"rank\":1}\n"));
}

TEST(an_event_too_long_is_dropped_whole)
{
    char path[] = "/tmp/ctrun-event-XXXXXX";
    char text[CT_EVENT_MAX_BYTES + 1];
    struct ct_event event;
    int fd = mkstemp(path);

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(ct_event_open(path), 0);
    ct_event_begin(&event, "big");
    ct_event_str(&event, "text", text);
    ct_event_end(&event);
    ct_event_close();
    assert_int_equal(lseek(fd, 0, SEEK_END), 0);
    close(fd);
    unlink(path);
}

/* As logrotate's copytruncate does during a run. */
TEST(a_file_that_is_truncated_begins_anew)
{
    char path[] = "/tmp/ctrun-event-XXXXXX";
    struct ct_event event;
    char first;
    int fd = mkstemp(path);

    assert_int_equal(ct_event_open(path), 0);
    ct_event_begin(&event, "before");
    ct_event_end(&event);
    assert_int_equal(ftruncate(fd, 0), 0);
    ct_event_begin(&event, "behind");
    ct_event_end(&event);
    ct_event_close();
    assert_int_equal(read(fd, &first, 1), 1);
    assert_int_equal(first, '{'); /* there is no hole in front of it */
    close(fd);
    unlink(path);
}

TEST(a_json_string_grows_with_what_is_escaped_and_is_whole_or_not_there)
{
    char text[1001];
    struct ct_buf buf;

    memset(text, 1, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    ct_buf_init(&buf, 6002 + 9);
    assert_int_equal(ct_json_append_str(&buf, "a\"\n"), 0);
    assert_int_equal(ct_buf_length(&buf), 11);
    assert_memory_equal(ct_buf_data(&buf), "\"a\\\"\\u000a\"", 11);
    /* Two bytes too many. */
    assert_int_equal(ct_json_append_str(&buf, text), -ENOBUFS);
    assert_int_equal(ct_buf_length(&buf), 11);
    ct_buf_consume(&buf, 2);
    assert_int_equal(ct_json_append_str(&buf, text), 0);
    assert_int_equal(ct_buf_length(&buf), 6002 + 9);
    ct_buf_deinit(&buf);
}
