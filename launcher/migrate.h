/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl migrate: where a script starts torchrun, and what it says with ctrun instead.
 *
 * A launch is a command of torchrun, python -m torch.distributed.run or .launch: by itself, behind
 * srun, env and their like, or in the quotes of ssh, bash -c and sh -c. Its first words become
 * ctrun; inside a step of Slurm the options go that say where to meet and who is who, and with the
 * last of them the settings of MASTER_ADDR and MASTER_PORT. All other bytes stay. What is not
 * understood stays as well, and is told.
 *
 * Pure. */
#ifndef LAUNCHER_MIGRATE_H
#define LAUNCHER_MIGRATE_H

#include <stdbool.h>

#include "launcher/text_edit.h"
#include "worker_sdk/base/error.h"

enum {
    MIGRATE_MAX_BYTES = 256 << 10,
    MIGRATE_NOTES_MAX = 4096
};

enum migrate_kind {
    MIGRATE_CHANGED,
    MIGRATE_LEFT, /* has to do with torchrun, and is as it was */
    MIGRATE_HINT, /* what a person may want to do */
};

struct migrate_note {
    enum migrate_kind kind;
    int line;
    char what[160];
    char why[200];
};

struct migrate {
    struct text_edits edits; /* sorted */
    struct migrate_note *notes;
    size_t note_count;
    size_t note_room;
    int launches; /* that are ctrun's now */
};

/* text[length] is 0. 0; -EINVAL: no script, or one whose quotes do not match; -E2BIG, -ENOMEM.
 * deinit in any case. */
int migrate_read(struct migrate *out, const char *text, size_t length,
                 struct ctrun_error *err);
void migrate_deinit(struct migrate *migrate);
/* True when something of torchrun is as it was. */
bool migrate_has_left(const struct migrate *migrate);

#endif
