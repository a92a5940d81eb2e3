/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <errno.h>
#include <string.h>

#include "launcher/options/shell_words.h"
#include "worker_sdk/base/alloc.h"

enum {
    WORDS_MAX = 6
};

TEST(texts_are_cut_as_a_shell_does)
{
    static const struct {
        const char *text;
        const char *words[WORDS_MAX];
    } rows[] = {
        {"", {NULL}},
        {" \t\n", {NULL}},
        {"a", {"a"}},
        {"  ./train --lr  1e-3\t-x\n", {"./train", "--lr", "1e-3", "-x"}},
        {"'a b' \"c d\" e\\ f", {"a b", "c d", "e f"}},
        {"--name='it'\"'\"'s'", {"--name=it's"}},
        {"'' \"\" x", {"", "", "x"}},
        {"'a\\nb' \"a\\nb\" a\\nb", {"a\\nb", "a\\nb", "anb"}},
        {"\"\\\\ \\\" \\$ \\`\" '\"'", {"\\ \" $ `", "\""}},
        {"$HOME *.c a|b >x ${local_rank} #y",
         {"$HOME", "*.c", "a|b", ">x", "${local_rank}", "#y"}},
        {"a\"b\"'c'd\\e", {"abcde"}},
        {"\\\na \\\n  b\\\nc \"d\\\ne\" 'f\\\ng' \\\n", {"a", "bc", "de", "f\\\ng"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char **words;
        size_t n = 0;

        assert_int_equal(shell_words_split(&words, rows[i].text, NULL), 0);
        for (; n < WORDS_MAX && rows[i].words[n]; n++) {
            assert_non_null(words[n]);
            assert_string_equal(words[n], rows[i].words[n]);
        }
        if (words[n])
            fail_msg("%s: one word more: %s", rows[i].text, words[n]);
        shell_words_free(words);
    }
}

TEST(what_is_not_closed_is_refused)
{
    static const char *const bad[][2] = {{"a 'b", "a ' is not closed"},
                                         {"a \"b\\\"", "a \" is not closed"},
                                         {"\"b\\", "a \" is not closed"},
                                         {"a\\", "a \\ at the end escapes nothing"}};
    struct ctrun_error err;
    char **words;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(shell_words_split(&words, bad[i][0], &err), CTRUN_E_USAGE);
        assert_string_equal(err.text, bad[i][1]);
        assert_null(words);
    }
    shell_words_free(NULL);
}

TEST(no_memory_is_told)
{
    char **words;

    ct_alloc_fail_at(1);
    assert_int_equal(shell_words_split(&words, "a b", NULL), -ENOMEM);
    ct_alloc_fail_at(0);
    assert_null(words);
}

TEST(joined_words_are_the_same_words_again)
{
    static const char *const rows[][WORDS_MAX] = {
        {"train.py", "--lr=1e-3", "-x", NULL},
        {"", "a b", "it's", "'", "\"\\\n$x", NULL},
        {NULL},
    };
    const char *const word[] = {"it's", NULL};
    char text[128], small[8];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char **words;
        size_t n = 0;

        assert_int_equal(shell_words_join(text, sizeof text, rows[i]), 0);
        assert_int_equal(shell_words_split(&words, text, NULL), 0);
        for (; rows[i][n]; n++)
            assert_string_equal(words[n], rows[i][n]);
        assert_null(words[n]);
        shell_words_free(words);
    }
    assert_int_equal(shell_words_join(text, sizeof text, rows[0]), 0);
    assert_string_equal(text, "train.py --lr=1e-3 -x");
    assert_int_equal(shell_words_join(small, sizeof small, word), -E2BIG);
    ct_alloc_fail_at(1);
    assert_int_equal(shell_words_join(text, sizeof text, word), -E2BIG);
    ct_alloc_fail_at(0);
}
