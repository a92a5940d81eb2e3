/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts (--hosts, --hosts-file), which of them is this machine, and which names of the
 * environment go along (--hosts-env). */
#pragma once

#include <stdbool.h>

#include "launcher/batch/hostlist.h"

/* Reads the hostlist `text`, or the file (lines of hostlists, '#' begins a comment) when text
 * is empty. Names may be "user@host". 0, or CTRUN_E_USAGE: malformed, a name that is none, one
 * that comes twice, no name at all. */
int ssh_names_read(struct hostlist *out, const char *text, const char *file,
                   struct ctrun_error *err);
/* True when `name` means the machine called `self`: its name, up to the first dot on both
 * sides, localhost, or a numeric address of it. Asks no resolver. "user@" is another account,
 * hence no. */
bool ssh_names_is_here(const char *name, const char *self);

/* The entries of env that go along: those that tune the launcher and the usual libraries, and
 * what `more` names ("NAME,PREFIX*,..."). A new list, NULL at the end, its entries borrowed
 * from env; NULL when memory is short. */
char **ssh_names_choose(char *const *env, const char *more);
