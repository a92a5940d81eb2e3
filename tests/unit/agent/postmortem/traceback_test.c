/* SPDX-License-Identifier: Apache-2.0 */
/* The last traceback in an output, and its exception. */
#include "agent/postmortem/traceback.h"
#include "tests/lib/facts_text.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

#define HEAD "Traceback (most recent call last):\n"
#define FRAMES                                                                         \
    "  File \"/job/train.py\", line 9, in <module>\n"                                  \
    "    step(0)\n"                                                                    \
    "  File \"/job/train.py\", line 4, in step\n"                                      \
    "    return 1 / n\n"
#define BOOM   HEAD FRAMES "ZeroDivisionError: division by zero\n"
#define NOISE  "NCCL INFO comm 0x5 destroyed\n"
#define NOISE8 NOISE NOISE NOISE NOISE NOISE NOISE NOISE NOISE

#define THREADS                                                                        \
    "Thread 0x00007f0000000000 (most recent call first):\n"                            \
    "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n\n"
#define CURRENT                                                                        \
    "Current thread 0x00007f2a16e3fb80 (most recent call first):\n"                    \
    "  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at\n"       \
    "  File \"/job/train.py\", line 4 in step\n"                                       \
    "  File \"/job/train.py\", line 9 in <module>\n"
#define MODULES "\nExtension modules: numpy.core, torch._C (total: 2)\n"
#define SEGV    "Fatal Python error: Segmentation fault\n"
#define SEGV_FOUND                                                                     \
    HEAD "  File \"/job/train.py\", line 9, in <module>\n"                             \
         "  File \"/job/train.py\", line 4, in step\n"                                 \
         "  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519, in "            \
         "string_at\n" SEGV

#define TERMINATE                                                                      \
    "terminate called after throwing an instance of 'c10::Error'\n"                    \
    "  what():  NCCL error: x\n"
#define ASSERTION "t.c:3: main: Assertion `n > 0' failed.\n"
#define ABORTED   "Fatal Python error: Aborted\n"
#define ABORT                                                                          \
    ABORTED "\nCurrent thread 0x7f (most recent call first):\n"                        \
            "  File \"/job/train.py\", line 4 in step\n" MODULES
#define ABORT_FOUND HEAD "  File \"/job/train.py\", line 4, in step\n" ABORTED

static const char *find(const char *text, size_t after_max)
{
    static char found[TRACEBACK_MAX_BYTES];

    return traceback_find(found, text, strlen(text), after_max) ? found : NULL;
}

TEST(the_last_one_is_found_whatever_follows)
{
    static const struct {
        const char *text, *found;
    } rows[] = {
        {BOOM, BOOM},
        {"starting\n" BOOM NOISE8 NOISE8, BOOM},
        {HEAD FRAMES "ValueError: first\n\nDuring handling of the above exception, "
                     "another exception occurred:\n\n" BOOM,
         BOOM},
        {NOISE HEAD FRAMES "KeyError: 'no end of line'",
         HEAD FRAMES "KeyError: 'no end of line'\n"},
        {"[rank1]: " HEAD "[rank1]:   File \"a.py\", line 1, in f\n" NOISE
         "[rank1]: ValueError: boom\n" NOISE8,
         HEAD "  File \"a.py\", line 1, in f\nValueError: boom\n"},
        {"RuntimeError: Caught it\nOriginal " BOOM, BOOM},
        {"t.c:3: main: Assertion `n > 0' failed.\n" NOISE8,
         "t.c:3: main: Assertion `n > 0' failed.\n"},
        {"terminate called after throwing an instance of 'std::runtime_error'\n"
         "  what():  boom\n" NOISE,
         "terminate called after throwing an instance of 'std::runtime_error'\n"
         "  what():  boom\n"},
        {"no end of line" SEGV "\n" THREADS CURRENT MODULES NOISE8, SEGV_FOUND},
        {BOOM SEGV "\n" CURRENT, SEGV_FOUND},
        {SEGV "\n" CURRENT BOOM, BOOM},
        {SEGV "\nCurrent thread 0x7f (most recent call first):\n  <no Python frame>\n",
         HEAD SEGV},
        {SEGV "\n" THREADS, NULL},
        {TERMINATE NOISE ABORT, ABORT_FOUND TERMINATE},
        {ASSERTION ABORT, ABORT_FOUND ASSERTION},
        {TERMINATE BOOM ABORT, ABORT_FOUND}, /* of a child, long ago */
        {TERMINATE ABORT ABORT, ABORT_FOUND},
        {TERMINATE SEGV "\n" CURRENT, SEGV_FOUND},
        {HEAD FRAMES, NULL}, /* incomplete: it continues, or was cut */
        {NOISE8, NULL},
        {"", NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *found = find(rows[i].text, 4096);

        if (!rows[i].found)
            assert_null(found);
        else if (!found || strcmp(found, rows[i].found) != 0)
            fail_msg("row %zu:\n%s", i, found ? found : "nothing");
    }
}

TEST(what_was_written_long_before_the_end_is_not_its_cause)
{
    assert_null(find(BOOM NOISE, 0));
    assert_non_null(find(BOOM, 0));
    assert_null(find(BOOM NOISE8, sizeof NOISE8 - 2));
    assert_non_null(find(BOOM NOISE8, sizeof NOISE8 - 1));
}

TEST(a_fatal_signal_is_the_end_whatever_follows)
{
    const char *found = find(SEGV "\n" CURRENT NOISE8, 0);

    assert_string_equal(found, SEGV_FOUND);
}

TEST(the_last_words_of_a_program_are_above_faulthandlers_stacks)
{
    static const struct {
        const char *words, *dump;
    } rows[] = {
        {NOISE "no end" SEGV, "\n" THREADS CURRENT MODULES},
        {ABORTED,
         "\n" THREADS "Current thread's C stack trace (most recent call first):\n"
         "  Binary file \"/lib/libc.so\", at abort+0x1 [0x2]\n" MODULES},
        {ABORTED,
         "\nCurrent thread 0x7f (most recent call first):\n  <no Python frame>\n"},
        {SEGV "\n" CURRENT MODULES NOISE, ""}, /* of a child that ended before */
        {"Timeout (0:00:08)!\n" THREADS, ""},
        {BOOM "\n", ""},
        {"", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2048];

        (void)ct_format(text, sizeof text, "%s%s", rows[i].words, rows[i].dump);
        assert_int_equal(traceback_cut_dump(text, strlen(text)), strlen(rows[i].words));
    }
}

TEST(the_end_of_a_long_one_is_kept_in_whole_lines)
{
    static char text[32 * 1024] = HEAD;
    const char *found;

    for (int i = 0; i < 300; i++)
        (void)ct_format(text + strlen(text), sizeof text - strlen(text),
                        "  File \"/job/deep.py\", line %d, in f\n", i);
    (void)ct_format(text + strlen(text), sizeof text - strlen(text),
                    "RecursionError: too deep\n");
    found = find(text, 0);
    assert_non_null(found);
    assert_true(strlen(found) < TRACEBACK_MAX_BYTES);
    assert_true(ct_starts_with(found, "  File \""));
    assert_non_null(strstr(found, "line 299, in f\nRecursionError: too deep\n"));
}

TEST(zeros_in_it_are_shown_and_end_nothing)
{
    enum {
        LINE = TRACEBACK_MAX_BYTES / 2 /* the longest that is kept */
    };
    static char text[4 * LINE], found[TRACEBACK_MAX_BYTES];
    size_t length = 0;

    memset(text, 'x', sizeof text);
    memcpy(text, HEAD, sizeof HEAD - 2);
    text[LINE - 1] = '\0';
    text[LINE] = '\n';
    length = LINE + 1;
    text[length] = ' ';
    text[length + LINE] = '\n';
    length += LINE + 1;
    memcpy(text + length, "KeyError: '\0'\n", 14);
    length += 14;
    assert_true(traceback_find(found, text, length, 0));
    assert_true(strlen(found) < TRACEBACK_MAX_BYTES);
    assert_non_null(strstr(found, "x\nKeyError: '?'\n"));
}

TEST(exception_and_place_are_told)
{
    static const struct {
        const char *text, *exception, *raised; /* "": no such fact */
    } rows[] = {
        {BOOM, "ZeroDivisionError: division by zero",
         "5 in /job/train.py, line 4, in step\n"},
        {FRAMES "ZeroDivisionError: division by zero\n",
         "ZeroDivisionError: division by zero",
         "5 in /job/train.py, line 4, in step\n"},
        {HEAD FRAMES
         "  File \"/usr/lib/python3/dist-packages/torch/f.py\", line 7, in g\n"
         "    raise ValueError\n"
         "ValueError: two\nlines\n",
         "ValueError: two",
         "5 in a library, called in /job/train.py, line 4, in step\n"},
        {SEGV_FOUND, "Fatal Python error: Segmentation fault",
         "5 in a library, called in /job/train.py, line 4, in step\n"},
        {HEAD "  File \"/opt/lib/python3.11/site-packages/x.py\", line 1, in x\nE\n",
         "E", "5 in /opt/lib/python3.11/site-packages/x.py, line 1, in x\n"},
        {"  File \"/job/t.py\", line 3\n    def :\n        ^\nSyntaxError: invalid\n",
         "SyntaxError: invalid", "5 in /job/t.py, line 3\n"},
        {"terminate called after throwing an instance of 'E'\n  what():  boom\n",
         "E: boom", ""},
        {"terminate called after throwing an instance of 'int'\n", "int", ""},
        {ABORT_FOUND TERMINATE, "c10::Error: NCCL error: x",
         "5 in /job/train.py, line 4, in step\n"},
        {ABORT_FOUND ASSERTION, "t.c:3: main: Assertion `n > 0' failed.",
         "5 in /job/train.py, line 4, in step\n"},
        {HEAD FRAMES "E: x: Assertion `n' failed.\n", "E: x: Assertion `n' failed.",
         "5 in /job/train.py, line 4, in step\n"},
        {"a\nt.c:3: main: Assertion `n' failed.\n",
         "t.c:3: main: Assertion `n' failed.", ""},
        {"no more\nthan lines\n", "", ""},
        {"  File \"x\" of", "", ""},
        {"", "", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ct_failure failure = {0};

        traceback_explain(&failure, rows[i].text, NULL);
        assert_string_equal(failure.exception, rows[i].exception);
        assert_string_equal(facts_text(&failure.facts), rows[i].raised);
    }
}

TEST(what_the_error_file_calls_it_counts)
{
    struct ct_failure failure = {0};

    traceback_explain(&failure, BOOM, "RuntimeError: \033[31mmine\nmore");
    assert_string_equal(failure.exception, "RuntimeError:  [31mmine");
    assert_string_equal(facts_text(&failure.facts),
                        "5 in /job/train.py, line 4, in step\n");
}
