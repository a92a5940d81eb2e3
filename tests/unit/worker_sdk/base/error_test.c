/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    LINE_MAX_BYTES = 64
};

TEST(fail_keeps_code_and_sentence)
{
    struct ctrun_error err;

    assert_int_equal(ct_fail(&err, -ENOENT, "open %s: %s", "x", "gone"), -ENOENT);
    assert_int_equal(err.code, -ENOENT);
    assert_string_equal(err.text, "open x: gone");
    assert_int_equal(ct_fail(NULL, CTRUN_E_DNS, "nobody listens"), CTRUN_E_DNS);
}

TEST(wrap_puts_where_in_front)
{
    struct ctrun_error err;

    ct_fail(&err, CTRUN_E_PORT_BUSY, "taken");
    ct_wrap(&err, "port %d", 29500);
    assert_int_equal(err.code, CTRUN_E_PORT_BUSY);
    assert_string_equal(err.text, "port 29500: taken");
}

TEST(what_it_quotes_steers_no_terminal)
{
    struct ctrun_error err;

    ct_fail(&err, CTRUN_E_BAD_DATA, "%s: gone\n", "a\x1b]0;b\x07\x7f\xc2\x9b");
    assert_string_equal(err.text, "a?]0;b????: gone\n");
    ct_wrap(&err, "%s", "\x1b[2J");
    assert_string_equal(err.text, "?[2J: a?]0;b????: gone\n");
}

static void keep_line(void *context, enum ctrun_log_level level, const char *line)
{
    assert_int_equal(level, CTRUN_LOG_WARN);
    (void)ct_copy(context, LINE_MAX_BYTES, line);
}

TEST(nor_does_a_line_of_the_log)
{
    char line[LINE_MAX_BYTES] = "";

    ct_log_set_sink(keep_line, line, CTRUN_LOG_WARN);
    ct_warn("of %s", "\x1b[31m\xff");
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    assert_string_equal(line, "of ?[31m?");
}

TEST(long_sentence_is_cut_not_overrun)
{
    struct ctrun_error err;
    char long_text[2 * CTRUN_ERROR_TEXT_MAX];

    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    ct_fail(&err, -EIO, "%s", long_text);
    assert_int_equal(strlen(err.text), CTRUN_ERROR_TEXT_MAX - 1);
    ct_wrap(&err, "where");
    assert_int_equal(strlen(err.text), CTRUN_ERROR_TEXT_MAX - 1);
}

TEST(codes_have_names_and_texts)
{
    assert_string_equal(ct_error_name(CTRUN_E_PORT_BUSY), "E_PORT_BUSY");
    assert_string_equal(ct_error_name(-EADDRINUSE), "E_PORT_BUSY");
    assert_string_equal(ct_error_name(-ESRCH), "E_NOT_FOUND");
    assert_string_equal(ct_error_name(-EPERM), "E_DENIED");
    assert_string_equal(ct_error_name(-ENOEXEC), "E_EXEC");
    assert_string_equal(ct_error_name(-123456), "E_SYSTEM");
    assert_string_equal(ctrun_strerror(CTRUN_E_TIMEOUT), "no answer in time");
    assert_string_equal(ctrun_strerror(-ENOENT), "No such file or directory");
    assert_string_equal(ctrun_strerror(-123456), "unknown error");
}

/* ctrun-errors(7) has an entry for each name that begins with E_ (lint/errors checks this), and for
 * no other. */
TEST(every_code_has_a_name_that_begins_with_E_)
{
    for (int code = 1; code < 200; code++)
        assert_memory_equal(ct_error_name(-code), "E_", 2);
}
