/* SPDX-License-Identifier: Apache-2.0 */
/* Which option a name means: whole, as a beginning, as one letter, or mistyped. Pure.
 *
 * is_launch: the names that only ctrun-launch has count, too. */
#pragma once

#include <stddef.h>

#include "launcher/options/option_table.h"

enum {
    OPTION_NAME_MAX_BYTES = 64,
    OPTION_MATCHES_MAX = 2 * OPTION_COUNT
};

/* One spelling of one option. */
struct option_match {
    enum option_id id;
    bool has_underscores;
};

/* A name of the table as it is, or with underscores, into dst[OPTION_NAME_MAX_BYTES]. */
void option_name_spell(char *dst, const char *name, bool with_underscores);
/* All spellings that begin with prefix[length], or only the exact one when there is one. Returns
 * how many. */
int option_name_find(struct option_match matches[OPTION_MATCHES_MAX],
                     const char *prefix, size_t length, bool is_launch);
/* The option of the short form; -1: none. */
int option_name_find_letter(char letter);
/* The option of the whole name, with - or _ between its words; -1: none. */
int option_name_find_whole(const char *name, bool is_launch);
/* The name that was perhaps meant; NULL when none is near. */
const char *option_name_nearest(const char *typed, bool is_launch);
