/* SPDX-License-Identifier: Apache-2.0 */
/* Where what is opened ends: quotes, brackets, words. Nothing is kept but the place. */
#include "launcher/shell_reader.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum {
    NEST_MAX = 64 /* $( in $(: what people write has three */
};

int shell_fail_open(struct shell_reader *r, size_t at, const char *what)
{
    return ct_fail(r->err, -EINVAL, "line %d: no end of %s", shell_line(r->text, at),
                   what);
}

/* ---- What must be closed ----------------------------------------------------------------- */

/* Behind the opening quote. */
static int skip_single(struct shell_reader *r, size_t opened, bool has_escapes)
{
    for (; r->at < r->end; r->at++) {
        if (has_escapes && r->text[r->at] == '\\' && r->at + 1 < r->end)
            r->at++;
        else if (r->text[r->at] == '\'') {
            r->at++;
            return 0;
        }
    }
    return shell_fail_open(r, opened, "the quote '");
}

static int skip_backquoted(struct shell_reader *r, size_t opened)
{
    for (; r->at < r->end; r->at++) {
        if (r->text[r->at] == '\\' && r->at + 1 < r->end)
            r->at++;
        else if (r->text[r->at] == '`') {
            r->at++;
            return 0;
        }
    }
    return shell_fail_open(r, opened, "the quote `");
}

/* At a $ that may begin something with an end. */
static int skip_dollar(struct shell_reader *r, int nest, bool is_quoted)
{
    const char next = shell_peek(r, 1);
    const size_t opened = r->at;

    r->at++;
    if (next == '(' || next == '{') {
        r->at++;
        return shell_skip_nested(r, next == '(' ? ')' : '}', nest + 1);
    }
    if (next == '\'' && !is_quoted) {
        r->at++;
        return skip_single(r, opened, true);
    }
    return 0;
}

static int skip_double(struct shell_reader *r, int nest)
{
    const size_t opened = r->at - 1;
    int rc = 0;

    while (rc == 0 && r->at < r->end) {
        const char c = r->text[r->at];

        if (c == '\\' && r->at + 1 < r->end)
            r->at += 2;
        else if (c == '$')
            rc = skip_dollar(r, nest, true);
        else if (c == '`') {
            r->at++;
            rc = skip_backquoted(r, r->at - 1);
        } else {
            r->at++;
            if (c == '"')
                return 0;
        }
    }
    return rc < 0 ? rc : shell_fail_open(r, opened, "the quote \"");
}

/* One character of a word, or all that it opens. */
static int skip_part(struct shell_reader *r, int nest)
{
    const char c = r->text[r->at];

    if (c == '\\' && r->at + 1 < r->end) {
        r->at += 2;
        return 0;
    }
    if (c == '$')
        return skip_dollar(r, nest, false);
    r->at++;
    if (c == '\'')
        return skip_single(r, r->at - 1, false);
    if (c == '"')
        return skip_double(r, nest);
    return c == '`' ? skip_backquoted(r, r->at - 1) : 0;
}

int shell_skip_nested(struct shell_reader *r, char close, int nest)
{
    const size_t opened = r->at - 1;
    const char open = r->text[opened];
    int rc = nest > NEST_MAX ? shell_fail_open(r, opened, "brackets in brackets") : 0;

    while (rc == 0 && r->at < r->end) {
        const char c = r->text[r->at];

        if (c == close) {
            r->at++;
            return 0;
        }
        if (c == open && open == '(') {
            r->at++;
            rc = shell_skip_nested(r, ')', nest + 1);
        } else if (c == '#' && open == '(' &&
                   isspace((unsigned char)r->text[r->at - 1])) {
            while (r->at < r->end && r->text[r->at] != '\n')
                r->at++;
        } else {
            rc = skip_part(r, nest);
        }
    }
    return rc < 0 ? rc : shell_fail_open(r, opened, open == '(' ? "(" : "{");
}

/* ---- Words ------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

void shell_skip_blanks(struct shell_reader *r)
{
    for (;;) {
        if (is_blank(shell_peek(r, 0)))
            r->at++;
        else if (shell_peek(r, 0) == '\\' && shell_peek(r, 1) == '\n')
            r->at += 2;
        else
            return;
    }
}

int shell_skip_word(struct shell_reader *r)
{
    const size_t start = r->at;
    int rc = 0;

    while (rc == 0 && r->at < r->end) {
        const char c = r->text[r->at];

        if ((c == '(' && r->at > start && r->text[r->at - 1] == '=') ||
            ((c == '<' || c == '>') && shell_peek(r, 1) == '(')) {
            r->at += c == '(' ? 1 : 2;
            rc = shell_skip_nested(r, ')', 1);
        } else if (strchr(" \t\n;&|()<>", c)) {
            break;
        } else {
            rc = skip_part(r, 0);
        }
    }
    return rc;
}
