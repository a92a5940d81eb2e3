/* SPDX-License-Identifier: Apache-2.0 */
/* A log file with a size cap: where to cut it, and how a full file is renamed.
 *
 *     stdout.log.1 -> stdout.log.2 (the oldest is removed)     stdout.log -> stdout.log.1
 *
 * Lines stay whole: a file holds at most the cap and the rest of one line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* State of a file that is written with a cap. */
struct logrotate {
    uint64_t max_bytes; /* 0: no cap */
    uint64_t size;      /* written so far */
    bool is_in_line;    /* the last byte written is no end of a line */
};

/* How many of data's bytes still belong to this file; *is_full: a new file comes after them.
 * May be 0, then *is_full. Pure. */
size_t logrotate_fit(const struct logrotate *file, const char *data, size_t length,
                     bool *is_full);
/* Counts bytes that were written. */
void logrotate_add(struct logrotate *file, const char *data, size_t length);
/* Renames path to path.1, path.1 to path.2 and so on up to path.`keep`, whose old file is
 * removed. With keep 0 no old file is kept: path stays, for the caller to truncate. 0 or a
 * negative errno. */
int logrotate_shift(const char *path, int keep);
