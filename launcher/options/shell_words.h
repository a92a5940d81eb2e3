/* SPDX-License-Identifier: Apache-2.0 */
/* A command line in one text, cut into words as a shell would, without a shell: blanks, '...',
 * "..." and backslashes, also those at the end of a line, have the shell's meaning; nothing else
 * has: no variables, no patterns, no pipes. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "worker_sdk/base/error.h"

/* *out: the words, NULL at the end; free with shell_words_free(). 0, CTRUN_E_USAGE (a quote is
 * not closed, a backslash escapes nothing), -ENOMEM. */
int shell_words_split(char ***out, const char *text, struct ctrun_error *err);
/* True when no character of the word is special to a shell, so that it needs no quotes. */
bool shell_words_is_simple(const char *word);
/* 'word' for any shell, with a quote in it as '\''. The caller frees; NULL when memory is short. */
char *shell_words_quote(const char *word);
/* The words in one text, which shell_words_split() splits again; quoted where needed. 0, -E2BIG. */
int shell_words_join(char *dst, size_t size, const char *const *words);
void shell_words_free(char **words); /* NULL is fine */
