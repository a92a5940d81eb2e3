/* SPDX-License-Identifier: Apache-2.0 */
/* A shell script as words and simple commands, by their places in the text: what is needed to
 * change a word of it and leave every other byte alone. Nothing is expanded, and nothing inside
 * $(...), `...`, quotes or here-documents is looked at.
 *
 *     for n in a b; do srun torchrun \        commands: [for n in a b] [do srun torchrun x.py]
 *         "x.py" > log & done                           [done]
 *
 * Redirections are no words. What does not end (a quote, a bracket, a here-document) is an error:
 * then nothing behind it can be relied on. Pure. */
#ifndef LAUNCHER_SHELL_SCRIPT_H
#define LAUNCHER_SHELL_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#include "worker_sdk/base/error.h"

struct shell_range {
    size_t start;
    size_t end; /* one behind */
};

struct shell_command {
    size_t first; /* of its words, in shell_script.words */
    size_t count; /* at least 1 */
    int depth;    /* of if, case, loops, { and ( around its first word */
    int loops;    /* of for, while, until and select */
    bool is_background;
};

struct shell_script {
    struct shell_range *words; /* all lists are owned */
    struct shell_command *commands;
    struct shell_range *comments; /* from # to the end of the line */
    size_t word_count, word_room;
    size_t command_count, command_room;
    size_t comment_count, comment_room;
};

/* Reads text[start..end). 0; -EINVAL: something does not end; -ENOMEM. deinit in any case. */
int shell_script_read(struct shell_script *out, const char *text, size_t start,
                      size_t end, struct ctrun_error *err);
void shell_script_deinit(struct shell_script *script);

/* The line of a place, from 1. */
int shell_line(const char *text, size_t at);

#endif
