/* SPDX-License-Identifier: Apache-2.0 */
/* The list and the words are one allocation, with the words after the list: no word is longer than
 * the text that it was made from. */
#include "launcher/options/shell_words.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

static const char blanks[] = " \t\n";

struct splitter {
    const char *at;
    char *to;
};

/* Skips a backslash together with the end of line that follows it. */
static bool skip_line_end(struct splitter *splitter)
{
    const bool is_one = splitter->at[0] == '\\' && splitter->at[1] == '\n';

    splitter->at += is_one ? 2 : 0;
    return is_one;
}

static void skip_blanks(struct splitter *splitter)
{
    do
        splitter->at += strspn(splitter->at, blanks);
    while (skip_line_end(splitter));
}

/* Reads up to the closing double quote; a backslash escapes only characters that are special
 * there. */
static bool take_double(struct splitter *splitter)
{
    splitter->at++;
    while (*splitter->at != '"') {
        if (skip_line_end(splitter))
            continue;
        if (splitter->at[0] == '\\' && splitter->at[1] &&
            strchr("\\\"$`", splitter->at[1]))
            splitter->at++;
        if (!*splitter->at)
            return false;
        *splitter->to++ = *splitter->at++;
    }
    splitter->at++;
    return true;
}

static bool take_single(struct splitter *splitter)
{
    const char *begin = splitter->at + 1;
    const char *end = strchr(begin, '\'');

    if (!end)
        return false;
    memcpy(splitter->to, begin, (size_t)(end - begin));
    splitter->to += end - begin;
    splitter->at = end + 1;
    return true;
}

/* One word, up to a blank or the end. NULL, or what is wrong. */
static const char *take_word(struct splitter *splitter)
{
    while (*splitter->at && !strchr(blanks, *splitter->at)) {
        if (skip_line_end(splitter))
            continue;
        if (*splitter->at == '\'') {
            if (!take_single(splitter))
                return "a ' is not closed";
        } else if (*splitter->at == '"') {
            if (!take_double(splitter))
                return "a \" is not closed";
        } else {
            if (*splitter->at == '\\' && !*++splitter->at)
                return "a \\ at the end escapes nothing";
            *splitter->to++ = *splitter->at++;
        }
    }
    *splitter->to++ = '\0';
    return NULL;
}

int shell_words_split(char ***out, const char *text, struct ctrun_error *err)
{
    const size_t length = strlen(text);
    const size_t max = length / 2 + 1; /* words of one letter */
    char **words;
    struct splitter splitter = {.at = text};
    const char *wrong = NULL;
    size_t count = 0;

    /* A word needs its characters and a NUL; the blank or the quotes around it leave room for the
     * NUL. */
    *out = NULL;
    if (length > SIZE_MAX / (2 * sizeof *words) ||
        !(words = ct_zalloc((max + 1) * sizeof *words + length + 2)))
        return ct_fail(err, -ENOMEM, "out of memory");
    splitter.to = (char *)(words + max + 1);
    for (skip_blanks(&splitter); !wrong && *splitter.at; skip_blanks(&splitter)) {
        words[count++] = splitter.to;
        wrong = take_word(&splitter);
    }
    if (wrong) {
        free(words);
        return ct_fail(err, CTRUN_E_USAGE, "%s", wrong);
    }
    *out = words;
    return 0;
}

char *shell_words_quote(const char *word)
{
    char *quoted = ct_zalloc(4 * strlen(word) + 3);
    char *at = quoted;

    if (!quoted)
        return NULL;
    *at++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(at, "'\\''", 4);
            at += 4;
        } else {
            *at++ = *word;
        }
    }
    *at = '\'';
    return quoted;
}

bool shell_words_is_simple(const char *word)
{
    static const char simple[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789-_./=:,+@%";

    return *word && word[strspn(word, simple)] == '\0';
}

int shell_words_join(char *dst, size_t size, const char *const *words)
{
    *dst = '\0';
    for (; *words; words++) {
        char *quoted = shell_words_is_simple(*words) ? NULL : shell_words_quote(*words);
        const int n = shell_words_is_simple(*words) || quoted
                          ? ct_append_item(dst, size, " ", "%s",
                                           quoted ? quoted : *words)
                          : -1;

        free(quoted);
        if (n < 0)
            return -E2BIG;
    }
    return 0;
}

void shell_words_free(char **words)
{
    free(words);
}
