/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/ctl/log_follow.h"
#include "tests/lib/test.h"

static char folder[64];
static char path[96];

static int begin(void **state)
{
    (void)snprintf(folder, sizeof folder, "log_follow_test.XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/log", folder);
    return 0;
}

static int end(void **state)
{
    char name[128];

    for (int i = 1; i < 5; i++) {
        (void)snprintf(name, sizeof name, "%s.%d", path, i);
        (void)unlink(name);
    }
    (void)unlink(path);
    return rmdir(folder);
}

static void put(const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void shift(int from)
{
    char old[128];
    char new[128];

    (void)snprintf(old, sizeof old, from ? "%s.%d" : "%s", path, from);
    (void)snprintf(new, sizeof new, "%s.%d", path, from + 1);
    assert_int_equal(rename(old, new), 0);
}

/* Reads the rest, through all renamed files. */
static const char *rest(int *fd)
{
    static char text[64];
    size_t used = 0;
    ssize_t n;

    do
        while (*fd >= 0 && (n = read(*fd, text + used, sizeof text - 1 - used)) > 0)
            used += (size_t)n;
    while (log_follow_next(fd, path, LOG_FOLLOW_ANYBODY) == 1);
    text[used] = '\0';
    return text;
}

TEST_AROUND(the_last_lines_are_found, begin, end)
{
    static const struct {
        const char *text;
        int count;
        const char *tail;
    } cases[] = {
        {"a\nb\nc\n", 2, "b\nc\n"},
        {"a\nb\nc", 2, "b\nc"},
        {"a\nb\n", 9, "a\nb\n"},
        {"a\nb\n", 0, ""},
        {"", 3, ""},
        {"\n\n\n", 1, "\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd;

        (void)unlink(path);
        put(cases[i].text);
        fd = open(path, O_RDONLY);
        assert_int_equal(log_follow_tail(fd, cases[i].count), 0);
        assert_string_equal(rest(&fd), cases[i].tail);
        close(fd);
    }
}

TEST_AROUND(a_tail_may_be_longer_than_a_block, begin, end)
{
    char line[32];
    int fd;

    for (int i = 0; i < 5000; i++) {
        (void)snprintf(line, sizeof line, "line %06d\n", i);
        put(line);
    }
    fd = open(path, O_RDONLY);
    assert_int_equal(log_follow_tail(fd, 4000), 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 1000 * 12);
    close(fd);
}

TEST_AROUND(renamed_files_are_read_to_the_newest, begin, end)
{
    int fd = -1;

    /* The file does not exist yet. */
    assert_int_equal(log_follow_next(&fd, path, LOG_FOLLOW_ANYBODY), 0);
    put("one ");
    assert_string_equal(rest(&fd), "one ");
    put("more ");
    shift(0);
    put("two ");
    shift(1);
    shift(0);
    put("three ");
    assert_string_equal(rest(&fd), "more two three ");
    close(fd);
}

TEST_AROUND(between_two_names_there_is_nothing, begin, end)
{
    int fd = -1;

    put("one ");
    assert_string_equal(rest(&fd), "one ");
    shift(0);
    assert_int_equal(log_follow_next(&fd, path, LOG_FOLLOW_ANYBODY), 0);
    put("two ");
    assert_string_equal(rest(&fd), "two ");
    close(fd);
}

TEST_AROUND(when_ours_is_gone_the_oldest_is_next, begin, end)
{
    int fd = -1;

    put("one ");
    assert_string_equal(rest(&fd), "one ");
    (void)unlink(path);
    put("three ");
    shift(0);
    put("four ");
    assert_string_equal(rest(&fd), "three four ");
    close(fd);
}

TEST_AROUND(an_emptied_file_is_read_from_its_beginning, begin, end)
{
    int fd = -1;

    put("one two three ");
    assert_string_equal(rest(&fd), "one two three ");
    assert_int_equal(truncate(path, 0), 0);
    put("four ");
    assert_string_equal(rest(&fd), "four ");
    close(fd);
}

TEST_AROUND(of_another_owner_nothing_is_opened, begin, end)
{
    int fd = -1;

    put("one ");
    assert_int_equal(log_follow_next(&fd, path, getuid() + 1), -EPERM);
    assert_int_equal(log_follow_next(&fd, "/dev/null", getuid()), -EPERM);
    assert_int_equal(fd, -1);
    assert_int_equal(log_follow_next(&fd, path, getuid()), 1);
    close(fd);
}
