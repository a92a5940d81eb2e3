/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of migrate share: migrate_launch.c finds and changes launches, with the help of
 * migrate_launch.h; migrate_names.c looks after the variables that they used. */
#ifndef LAUNCHER_MIGRATE_PRIVATE_H
#define LAUNCHER_MIGRATE_PRIVATE_H

#include "launcher/migrate.h"
#include "launcher/shell_script.h"

enum {
    MIGRATE_NEST_MAX = 4, /* ssh host "bash -c '...'" */
    MIGRATE_SHOWN = 60    /* bytes of a script that a sentence shows */
};

struct migrate_work {
    struct migrate *out;
    const char *text;
    size_t length;
    const struct shell_script *script; /* of the whole text */
    struct text_edits seen; /* ranges that were dealt with; their texts are empty */
    bool has_kept;          /* a launch that says itself where to meet */
    bool has_reader;        /* another program that MASTER_ADDR may be for */
    int reader_line;
    struct ctrun_error *err;
};

/* Where the words of a command stand. */
struct migrate_place {
    bool is_step; /* srun, or inside what it starts */
    bool
        is_one_node; /* srun is told to take one, or goes to the background in a loop */
    bool is_remote;  /* ssh */
    int nest;
};

__attribute__((format(printf, 5, 6))) int migrate_note(struct migrate_work *work,
                                                       enum migrate_kind kind,
                                                       size_t at, const char *what,
                                                       const char *why, ...);

/* All launches of a script, which may be a part of the text. 0 or a negative errno. */
int migrate_launches(struct migrate_work *work, const struct shell_script *script,
                     struct migrate_place place);
/* Mentions of torchrun that no launch is, then what is not needed any more. */
int migrate_mentions(struct migrate_work *work);
int migrate_names(struct migrate_work *work);

/* ---- migrate_word.c ---------------------------------------------------------------------- */

/* The word is this text, quoted or not. */
bool migrate_is(const struct migrate_work *work, struct shell_range word,
                const char *text);
/* Its first bytes are. */
bool migrate_begins(const struct migrate_work *work, struct shell_range word,
                    const char *text);
/* The bytes of `range` hold this text. */
bool migrate_has(const struct migrate_work *work, struct shell_range range,
                 const char *text);
/* Its last ones, but for a closing quote. */
bool migrate_ends(const struct migrate_work *work, struct shell_range word,
                  const char *tail);
/* The word is one of these, which blanks separate. */
bool migrate_is_any(const struct migrate_work *work, struct shell_range word,
                    const char *names);
/* The shell puts something into it. */
bool migrate_is_dynamic(const struct migrate_work *work, struct shell_range word);
bool migrate_is_option(const struct migrate_work *work, struct shell_range word);
/* python, /opt/bin/python3.11, "$VENV/bin/python" */
bool migrate_is_python(const struct migrate_work *work, struct shell_range word);
/* A variable alone, which may be an interpreter: $PYTHON -m torch.distributed.run. */
bool migrate_is_variable(const struct migrate_work *work, struct shell_range word);
/* NAME=value; how long the name is, else 0. */
size_t migrate_assigned(const struct migrate_work *work, struct shell_range word);
/* Some of the text on one line, for people. */
void migrate_show(char *dst, size_t size, const struct migrate_work *work, size_t start,
                  size_t end);

/* ---- migrate.c --------------------------------------------------------------------------- */

/* True when one of the ranges holds that byte. */
bool migrate_is_in(const struct shell_range *list, size_t count, size_t at);
/* True when a name of torchrun's stands in the range. */
bool migrate_mentions_torchrun(const struct migrate_work *work,
                               struct shell_range range, size_t *at);

#endif
