/* SPDX-License-Identifier: Apache-2.0 */
/* --failure-rules: a site's own texts of failures, checked before those that ctrun knows. The file
 * has the grammar of config_file.h; each `words` begins a rule:
 *
 *     words  = "GPFS: Stale NFS"
 *     likely = "the shared file system lost its server"     # what it means
 *     do     = "mmlsmount on this node; tell the site"      # may be left out
 *     kind   = "hardware"   # counts for --exclude-node-after; may be left out
 */
#pragma once

#include "agent/postmortem/failure_hints.h"
#include "worker_sdk/base/error.h"

enum {
    FAILURE_RULES_MAX = 256,
    FAILURE_RULES_FILE_MAX_BYTES = 256 * 1024
};

struct failure_rules {
    char *text; /* owned; the rules point into it */
    int count;
    struct failure_rule list[FAILURE_RULES_MAX];
};

/* text[length] must be 0. Changes `text` and takes ownership of it, on failure too. `name` is the
 * file's, for the error. 0, or CTRUN_E_USAGE. */
int failure_rules_parse(struct failure_rules *out, char *text, size_t length,
                        const char *name, struct ctrun_error *err);
/* The same from a file. */
int failure_rules_read(struct failure_rules *out, const char *path,
                       struct ctrun_error *err);
void failure_rules_deinit(struct failure_rules *rules); /* a zeroed one is fine */
