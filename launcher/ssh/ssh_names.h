/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts (--hosts, --hosts-file), which of them is this machine, and which environment
 * variables are sent to the hosts (--hosts-env). */
#pragma once

#include <stdbool.h>

#include "launcher/batch/hostlist.h"

/* Reads the hostlist `text`, or the file (lines of hostlists, '#' begins a comment) when text
 * is empty. Names may be "user@host". 0, or CTRUN_E_USAGE: malformed, an invalid name, a name
 * given twice, or no name. */
int ssh_names_read(struct hostlist *out, const char *text, const char *file,
                   struct ctrun_error *err);
/* The name without "user@". Borrowed from it. */
const char *ssh_names_host(const char *name);
/* True when `name` means the machine called `self`: the names are equal up to the first dot, or
 * `name` is localhost or a numeric address of this machine. Asks no resolver. False with "user@",
 * which is another account. */
bool ssh_names_is_here(const char *name, const char *self);

/* The entries of env that are sent to the hosts: those for the launcher and common libraries, and
 * those that `more` names ("NAME,PREFIX*,..."). A new list, NULL at its end, with entries borrowed
 * from env; NULL when memory is short. */
char **ssh_names_choose(char *const *env, const char *more);
