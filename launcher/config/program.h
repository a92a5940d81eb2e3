/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker executes: an interpreter with a script, or a program of its own.
 *
 * torchrun gives everything to Python unless --no-python is given. ctrun does that too,
 * with one addition: a word that cannot be a Python script runs directly. In this
 * order:
 *
 *   ends in .py                        Python
 *   is a file that begins with ELF     directly
 *   is an executable file with a #!    directly
 *   is another file with a #! that
 *   names no Python                    refused before anything starts, exit 126
 *   is any other file or directory     Python
 *   is no file, but a program in PATH
 *   or beside ctrun itself             directly
 *   does not exist                     refused before anything starts, exit 127 */
#pragma once

#include <limits.h>

#include "launcher/options/option.h"

enum program_mode {
    PROGRAM_PYTHON,   /* interpreter -u SCRIPT ARGS */
    PROGRAM_MODULE,   /* interpreter -u -m MODULE ARGS */
    PROGRAM_RUN_PATH, /* interpreter -u -c RUNPY SCRIPT ARGS */
    PROGRAM_DIRECT,   /* PROGRAM ARGS */
};

enum {
    PROGRAM_HEAD_MAX = 3
};

struct program {
    enum program_mode mode;
    char path[PATH_MAX]; /* argv[0]: looked up in PATH when it has no slash */
    const char
        *head[PROGRAM_HEAD_MAX]; /* "-u", "-m": taken as they are; NULL at the end */
    char **args;       /* the user's words; $local_rank is replaced. Borrowed */
    int local_rank_at; /* --local-rank=N comes before this one of args; -1: not at all */
    bool is_no_python; /* --no-python was given */
    const char *name;  /* title of the failure summary. Borrowed */
    int torch;         /* torch_env_find() of its interpreter; 0: none, or no Python */
};

/* 0, CTRUN_E_EXEC (it does not exist: exit 127), -ENOEXEC (it cannot be executed: 126), -EINVAL (--no-python with --module). Looks
 * at files and at PATH and PYTHON_EXEC of env. */
int program_resolve(struct program *out, const struct options *options,
                    char *const *env, struct ctrun_error *err);
/* The command `words` in place of that of `like`, with the same options. `words` is kept. */
int program_resolve_like(struct program *out, const struct program *like, char **words,
                         char *const *env, struct ctrun_error *err);
