/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/output/lines.h"
#include "tests/lib/test.h"

static size_t first(const char *text)
{
    return lines_first(text, strlen(text), 16);
}

TEST(a_piece_ends_with_its_line)
{
    assert_int_equal(first("one\ntwo\n"), 4);
    assert_int_equal(first("\n"), 1);
    assert_int_equal(first("no end"), 0);
    assert_int_equal(first(""), 0);
}

TEST(a_carriage_return_ends_a_piece_once_it_is_known_to_be_alone)
{
    assert_int_equal(first(" 1%\r 2%\r"), 4);
    assert_int_equal(first("dos\r\nnext"), 5);
    assert_int_equal(first(" 2%\r"), 0); /* a '\n' may follow */
    assert_int_equal(first("\r"), 0);
}

TEST(a_mark_of_an_end_is_found_wherever_it_is)
{
    assert_true(lines_have_end("ab\nc", 4));
    assert_true(lines_have_end("ab\r", 3));
    assert_false(lines_have_end("ab\n", 2));
    assert_false(lines_have_end("", 0));
}

/* Else many short pieces cost a search through all that follows for each. */
TEST(what_is_far_behind_an_end_is_not_read)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *data = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(data != MAP_FAILED);
    memset(data, 'a', page);
    assert_int_equal(mprotect(data + page, page, PROT_NONE), 0);
    data[1] = '\r';
    assert_true(lines_have_end(data, 2 * page));
    assert_int_equal(lines_first(data, 2 * page, 2 * page), 2);
    data[1] = '\n';
    assert_true(lines_have_end(data, 2 * page));
    assert_int_equal(lines_first(data, 2 * page, 2 * page), 2);
    assert_int_equal(munmap(data, 2 * page), 0);
}

TEST(the_beginning_of_a_line_tears_no_character)
{
    static const struct {
        const char *text;
        size_t length;
    } rows[] = {{"", 0},         {"a? ", 3},       {"\xc3\xa9", 2},
                {"a\xc3", 1},    {"a\xe2\x82", 1}, {"\xe2\x82\xac", 3},
                {"\xf0\x9f", 0}, {"\xff\xfe", 2},  {"\x80\x80\x80\x80", 4}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(lines_begun(rows[i].text, strlen(rows[i].text)),
                         rows[i].length);
}

TEST(a_line_without_end_is_cut_at_the_maximum)
{
    assert_int_equal(first("0123456789abcdef"), 16);
    assert_int_equal(first("0123456789abcdefg\n"), 16);
    assert_int_equal(first("0123456789abcde"), 0);
    assert_int_equal(first("0123456789abcde\r"), 16);
}

TEST(a_cut_does_not_tear_a_character)
{
    assert_int_equal(first("0123456789abcde\xc3\xa9xx"), 15);
    assert_int_equal(first("0123456789abc\xf0\x9f\x98\x80xx"), 13);
    assert_int_equal(
        first("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"),
        16);
}

TEST(whole_lines_are_taken_together)
{
    const char *text = "one\ntwo\nthr";

    assert_int_equal(lines_whole(text, strlen(text), 64), 8);
    assert_int_equal(lines_whole(text, strlen(text), 5), 4);
    assert_int_equal(lines_whole(" 1%\r 2%", 7, 64), 4);
    assert_int_equal(lines_whole(" 1%\r 2%\r 3%\r", 12, 64), 8);
    assert_int_equal(lines_whole(" 1%\r\n", 5, 4), 5);
    assert_int_equal(lines_whole("thr", 3, 64), 0);
    assert_int_equal(lines_whole("", 0, 64), 0);
}

TEST(a_match_is_a_plain_substring)
{
    const char *const texts[] = {"loss", "acc", NULL};

    assert_true(lines_match("step 1 acc=3", 12, texts));
    assert_false(lines_match("step 1 Acc=3", 12, texts));
    assert_false(lines_match("acc", 3, NULL));
}

static void assert_last(const char *data, int count, size_t size, const char *expected)
{
    char out[64];

    assert_int_equal(lines_last(data, strlen(data), count, out, size),
                     strlen(expected));
    assert_string_equal(out, expected);
}

TEST(the_last_lines_leave_out_blanks_and_overwritten_bars)
{
    assert_last("a\nb\n\n  \nc\n", 2, 64, "b\nc");
    assert_last(" 1%\r 2%\r 3%\nError: x", 3, 64, " 3%\nError: x");
    assert_last(" 1%\r 2%\r", 3, 64, " 2%");
    assert_last("", 3, 64, "");
    assert_last("\n\n", 3, 64, "");
}

TEST(of_a_last_line_that_is_too_long_the_beginning_is_kept)
{
    assert_last("a\nbcdefghi\n", 3, 6, "bcdef");
    assert_last("a\nbcd\303\251fghi", 3, 5, "bcd"); /* no half of a character */
    assert_last("abcdefghi\nb\n", 3, 6, "b");
    assert_last("first\nsecond\n", 5, 7, "second");
    assert_last("first\nsecond\n", 5, 4, "sec");
}

TEST(of_a_long_line_the_beginning_is_kept_so_that_others_fit)
{
    char data[1400], out[1024];

    memset(data, 'x', sizeof data);
    memcpy(data, "first\n", 6);
    memcpy(data + sizeof data - 5, "\nlast", 5);
    assert_int_equal(lines_last(data, sizeof data, 3, out, sizeof out), 6 + 300 + 5);
    assert_int_equal(memcmp(out, "first\nxxx", 9), 0);
    assert_string_equal(out + 6 + 300, "\nlast");
    data[sizeof data - 5] =
        'x'; /* the last line, which says most, is as long as fits */
    assert_int_equal(lines_last(data, sizeof data, 3, out, sizeof out), sizeof out - 1);
}

TEST(the_beginning_goes_when_the_last_lines_do_not_fit)
{
    assert_last("first\nsecond\n", 5, 8, "second");
    assert_last("first\nsecond\n", 5, 13, "first\nsecond");
}
