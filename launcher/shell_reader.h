/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that read a shell script share: shell_script.c reads words and commands,
 * shell_skip.c finds the ends of what is opened, shell_redirection.c reads redirections and
 * here-documents. */
#ifndef LAUNCHER_SHELL_READER_H
#define LAUNCHER_SHELL_READER_H

#include "launcher/shell_script.h"

enum {
    SHELL_DOCUMENTS_MAX = 8 /* here-documents that begin on one line */
};

struct shell_document {
    struct shell_range mark; /* as it is written, quotes included */
    bool has_tabs;           /* <<- */
};

struct shell_reader {
    struct shell_script *out;
    const char *text;
    size_t at;
    size_t end;
    struct shell_command command; /* being read */
    int depth;
    int loops;
    int parens;
    struct shell_document documents[SHELL_DOCUMENTS_MAX];
    int document_count;
    struct ctrun_error *err;
};

/* The character so far ahead; 0 behind the end. */
static inline char shell_peek(const struct shell_reader *r, size_t ahead)
{
    return ahead < r->end - r->at ? r->text[r->at + ahead] : '\0';
}

/* -EINVAL: what began at `at` has no end. */
int shell_fail_open(struct shell_reader *r, size_t at, const char *what);

/* ---- shell_skip.c: 0, or shell_fail_open() ----------------------------------------------- */

/* Behind the opening bracket, up to behind the closing one. */
int shell_skip_nested(struct shell_reader *r, char close, int nest);
/* Blanks, and lines that go on. */
void shell_skip_blanks(struct shell_reader *r);
/* Up to the end of the word that begins here; NAME=(...) is one. */
int shell_skip_word(struct shell_reader *r);

/* ---- shell_redirection.c ----------------------------------------------------------------- */

/* At < or >, digits in front of it are passed: it and its word. */
int shell_redirection_read(struct shell_reader *r);
/* Behind the end of a line: the here-documents that began on it. */
int shell_redirection_skip_documents(struct shell_reader *r);

#endif
