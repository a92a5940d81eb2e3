/* SPDX-License-Identifier: Apache-2.0 */
/* One launch, step by step: migrate_find.c finds its launcher in a command, migrate_options.c reads
 * what it says, migrate_rewrite.c writes what becomes of it; migrate_launch.c walks over all
 * commands of a script. */
#ifndef LAUNCHER_MIGRATE_LAUNCH_H
#define LAUNCHER_MIGRATE_LAUNCH_H

#include "launcher/migrate_private.h"

enum {
    MIGRATE_OPTIONS_MAX = 64
};

struct migrate_given {
    int id;
    size_t first; /* words */
    size_t last;
    struct shell_range value; /* empty: a flag */
};

struct migrate_launch {
    size_t first; /* words of the launcher: torchrun, or python -m ... */
    size_t last;
    bool is_old;  /* torch.distributed.launch */
    bool is_path; /* its interpreter is not the one in PATH */
    struct shell_range python;
    struct migrate_given given[MIGRATE_OPTIONS_MAX];
    int given_count;
    bool has_program; /* else some of the options may be in a variable */
};

/* ---- migrate_find.c ---------------------------------------------------------------------- */

/* Finds the launcher behind keywords, assignments and wrappers, which fill `place`. */
bool migrate_find_launcher(const struct migrate_work *work,
                           const struct shell_range *words, size_t count,
                           struct migrate_place *place, struct migrate_launch *launch);
/* The word that is the command, behind keywords and assignments; count: there is none. */
size_t migrate_find_head(const struct migrate_work *work,
                         const struct shell_range *words, size_t count);
/* A command that talks about torchrun, or looks for it. */
bool migrate_is_talker(const struct migrate_work *work, struct shell_range word);

/* ---- migrate_options.c ------------------------------------------------------------------- */

/* Of a launch whose launcher is found. 0; 1: something that torchrun does not know, at *bad. */
int migrate_options_read(const struct migrate_work *work,
                         const struct shell_range *words, size_t count,
                         struct migrate_launch *launch, size_t *bad);
/* The last one of that id, as torchrun takes it; NULL: none. */
const struct migrate_given *migrate_options_find(const struct migrate_launch *launch,
                                                 int id);
/* $PYTHON without quotes may hold options, too. */
bool migrate_options_is_one_word(const struct migrate_work *work,
                                 struct shell_range python);

/* ---- migrate_rewrite.c ------------------------------------------------------------------- */

/* Its changes, and why; of one that ctrun refuses only why it stays. 0 or a negative errno. */
int migrate_rewrite(struct migrate_work *work, const struct shell_range *words,
                    const struct migrate_place *place,
                    const struct migrate_launch *launch);

#endif
