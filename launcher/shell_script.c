/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/shell_script.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/shell_reader.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

int shell_line(const char *text, size_t at)
{
    int line = 1;

    for (size_t i = 0; i < at; i++)
        line += text[i] == '\n';
    return line;
}

/* ---- Lists ------------------------------------------------------------------------------- */

/* Room for one more; the list may move. */
static int make_room(void **list, size_t *room, size_t count, size_t size)
{
    const size_t wanted = *room ? 2 * *room : 64;
    void *larger;

    if (count < *room)
        return 0;
    if (!(larger = ct_realloc_array(*list, wanted, size)))
        return -ENOMEM;
    *list = larger;
    *room = wanted;
    return 0;
}

static int add_range(struct shell_range **list, size_t *room, size_t *count,
                     size_t start, size_t end)
{
    int rc = make_room((void **)list, room, *count, sizeof **list);

    if (rc == 0)
        (*list)[(*count)++] = (struct shell_range){start, end};
    return rc;
}

/* ---- Words and commands ------------------------------------------------------------------ */

static bool is_word(const struct shell_reader *r, struct shell_range word,
                    const char *text)
{
    const size_t length = strlen(text);

    return word.end - word.start == length &&
           memcmp(r->text + word.start, text, length) == 0;
}

static bool is_one_of(const struct shell_reader *r, struct shell_range word,
                      const char *const *names)
{
    for (; *names; names++)
        if (is_word(r, word, *names))
            return true;
    return false;
}

/* Only a first word opens and closes; `do`, `then` and their like stand in front of others. */
static void heed_keyword(struct shell_reader *r, struct shell_range word,
                         bool *stays_first)
{
    static const char *const loops[] = {"for", "while", "until", "select", NULL};
    static const char *const opens[] = {"if", "case", "{", NULL};
    static const char *const closes[] = {"fi", "esac", "}", NULL};
    static const char *const passes[] = {"do",    "then",  "else", "elif", "if", "!",
                                         "while", "until", "{",    "time", NULL};

    if (is_one_of(r, word, loops)) {
        r->depth++;
        r->loops++;
    } else if (is_word(r, word, "done")) {
        r->depth -= r->depth > 0;
        r->loops -= r->loops > 0;
    } else if (is_one_of(r, word, opens)) {
        r->depth++;
    } else if (is_one_of(r, word, closes)) {
        r->depth -= r->depth > 0;
    }
    *stays_first = is_one_of(r, word, passes);
}

static int end_command(struct shell_reader *r, bool is_background)
{
    struct shell_script *out = r->out;
    int rc;

    if (r->command.count == 0)
        return 0;
    rc = make_room((void **)&out->commands, &out->command_room, out->command_count,
                   sizeof *out->commands);
    r->command.is_background = is_background;
    if (rc == 0)
        out->commands[out->command_count++] = r->command;
    r->command.count = 0;
    return rc;
}

static bool all_words_pass(const struct shell_reader *r)
{
    for (size_t i = 0; i < r->command.count; i++) {
        struct shell_reader copy = *r;
        bool passes;

        heed_keyword(&copy, r->out->words[r->command.first + i], &passes);
        if (!passes)
            return false;
    }
    return true;
}

static int add_word(struct shell_reader *r, size_t start)
{
    const struct shell_range word = {start, r->at};
    const bool is_first = r->command.count < 8 && all_words_pass(r);
    bool stays_first;
    int rc;

    if (r->command.count == 0)
        r->command = (struct shell_command){.first = r->out->word_count};
    rc = add_range(&r->out->words, &r->out->word_room, &r->out->word_count, start,
                   r->at);
    r->command.count++;
    if (is_first)
        heed_keyword(r, word, &stays_first);
    if (r->command.count == 1) {
        r->command.depth = r->depth;
        r->command.loops = r->loops;
    }
    return rc;
}

/* ---- The script -------------------------------------------------------------------------- */

static int read_paren(struct shell_reader *r)
{
    int rc = end_command(r, false);

    if (rc < 0)
        return rc;
    if (shell_peek(r, 0) == '(' &&
        shell_peek(r, 1) == '(') { /* arithmetic, with its own < */
        r->at++;
        return shell_skip_nested(r, ')', 0);
    }
    if (shell_peek(r, 0) == '(') {
        r->parens++;
        r->depth++;
    } else if (r->parens > 0) { /* else of a pattern of case */
        r->parens--;
        r->depth -= r->depth > 0;
    }
    r->at++;
    return 0;
}

static int read_separator(struct shell_reader *r)
{
    const char c = shell_peek(r, 0);
    int rc;

    if (c == '(' || c == ')')
        return read_paren(r);
    rc = end_command(r, c == '&' && shell_peek(r, 1) != '&');
    r->at++;
    if (c != '\n' && shell_peek(r, 0) == c)
        r->at++;
    return rc == 0 && c == '\n' ? shell_redirection_skip_documents(r) : rc;
}

static int read_comment(struct shell_reader *r)
{
    const size_t start = r->at;

    while (r->at < r->end && r->text[r->at] != '\n')
        r->at++;
    return add_range(&r->out->comments, &r->out->comment_room, &r->out->comment_count,
                     start, r->at);
}

/* A word; digits in front of < and > belong to these. */
static int read_word(struct shell_reader *r)
{
    const size_t start = r->at;
    int rc = shell_skip_word(r);
    size_t digits = start;

    if (rc < 0)
        return rc;
    while (digits < r->at && isdigit((unsigned char)r->text[digits]))
        digits++;
    if (digits == r->at && (shell_peek(r, 0) == '<' || shell_peek(r, 0) == '>'))
        return 0;
    return add_word(r, start);
}

static int read_all(struct shell_reader *r)
{
    int rc = 0;

    while (rc == 0) {
        char c;

        shell_skip_blanks(r);
        if (r->at >= r->end)
            break;
        c = shell_peek(r, 0);
        if (c == '#')
            rc = read_comment(r);
        else if ((c == '&' && shell_peek(r, 1) == '>') ||
                 ((c == '<' || c == '>') && shell_peek(r, 1) != '(')) {
            r->at += c == '&';
            rc = shell_redirection_read(r);
        } else if (c && strchr("\n;&|()", c)) {
            rc = read_separator(r);
        } else {
            rc = read_word(r);
        }
    }
    if (rc == 0 && r->document_count > 0)
        rc = shell_fail_open(r, r->documents[0].mark.start, "the here-document");
    return rc < 0 ? rc : end_command(r, false);
}

int shell_script_read(struct shell_script *out, const char *text, size_t start,
                      size_t end, struct ctrun_error *err)
{
    struct shell_reader r = {
        .out = out, .text = text, .at = start, .end = end, .err = err};
    int rc;

    *out = (struct shell_script){0};
    if (memchr(text + start, 0, end - start))
        return ct_fail(err, -EINVAL, "a NUL byte; this is no script");
    rc = read_all(&r);
    return rc == -ENOMEM ? ct_fail(err, rc, "out of memory") : rc;
}

void shell_script_deinit(struct shell_script *script)
{
    free(script->words);
    free(script->commands);
    free(script->comments);
    *script = (struct shell_script){0};
}
