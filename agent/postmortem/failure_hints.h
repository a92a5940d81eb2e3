/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a worker most likely means, and what to do about it: a table of signals, exit
 * codes, errors of execve() and last lines of output. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* A rule of the user: words in a text, what they most likely mean, what to do (NULL: nothing is
 * advised). */
struct failure_rule {
    const char *words;
    const char *likely;
    const char *remedy;
    bool is_hardware; /* a machine that reports this is broken, or may be */
};

/* From now on these rules are tried before the table; kept. Before other threads begin. */
void failure_hints_use(const struct failure_rule *rules, int count);

enum {
    FAILURE_HINT_MAX = 512
};

/* What one line of a log means. */
struct failure_hint {
    int number;          /* of its rule: equal numbers mean the same */
    bool is_consequence; /* programs may recover from it, or another error caused it */
    char likely[FAILURE_HINT_MAX];
    const char *remedy; /* NULL: none is known */
};

/* The line is evidence of a broken machine, not only of a failed program. */
bool failure_hints_is_hardware(const char *line);
/* Tries rules of text only. False: no rule knows the line. */
bool failure_hints_find_in_line(const char *line, struct failure_hint *out);
/* Numbers of rules are below this. */
int failure_hints_numbers(void);
/* The rows of the table. */
int failure_hints_count(void);
/* The first row that fits: its exception, then its text and the last lines of its output, then
 * signal or code; -1: none. */
int failure_hints_find(const struct ct_failure *failure, const char *last_lines);
/* Adds the meaning to failure->facts, and the line about broken hardware (CT_FACT_HARDWARE).
 * is_signal_named: the cause of its signal is known already; then a row for that signal adds
 * nothing, and after a wrong instruction or address neither does one for a text. */
void failure_hints_add(struct ct_failure *failure, bool is_signal_named,
                       const char *last_lines);
/* What the worker's last words say of another rank, if they made it a victim (ct_failure_is_victim()). */
enum failure_victim {
    FAILURE_NO_VICTIM,
    FAILURE_OF_END,  /* that has ended, or its network has failed */
    FAILURE_OF_DELAY /* that did not come until a time-out */
};
enum failure_victim failure_hints_victim(const struct ct_failure *failure);
