/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's hostlists: "gpu[001-003,7],login1" and back.
 *
 *     list   = [ item *( "," item ) ]       blanks separate too; empty items are skipped
 *     item   = name / 1*( prefix "[" ranges "]" )   nothing may follow the last bracket
 *     ranges = number [ "-" number ] *( "," ... )   the first number's width pads both
 *
 * Accepts what `scontrol show hostnames` (22.05) accepts, but for an unclosed bracket, which is
 * an error here. Order and repeats are kept. Pure. */
#pragma once

#include <stddef.h>

#include "worker_sdk/base/error.h"

enum {
    HOSTLIST_NAMES_MAX = 65536,   /* Slurm's own limit */
    HOSTLIST_BYTES_MAX = 4 << 20, /* of all names together */
};

struct hostlist {
    char **names; /* owned */
    size_t count;
    size_t bytes;
};

/* 0, or -EINVAL (malformed), -E2BIG (more than the caps), -ENOMEM; *out is empty then. */
int hostlist_parse(const char *text, struct hostlist *out, struct ctrun_error *err);
/* Adds a name at the end. 0, -E2BIG, -ENOMEM. */
int hostlist_add(struct hostlist *list, const char *name);
void hostlist_deinit(struct hostlist *list);
/* Writes `list` in brackets ("gpu[1-3,07]"); what does not fit ends in "...". Order is kept.
 * Returns dst. */
char *hostlist_format(const struct hostlist *list, char *dst, size_t size);
