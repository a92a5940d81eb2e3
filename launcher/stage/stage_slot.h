/* SPDX-License-Identifier: Apache-2.0 */
/* Where the copies are on a host: BASE/ctrun-stage-UID/KEY-N/NAME; BASE is --stage-dir, else
 * TMPDIR, else /tmp; KEY is a hash of the staged paths.
 *
 * Only the user can access the folder ctrun-stage-UID (0700, owner checked, no link followed),
 * so its content can be trusted. If another user has made a folder of that name, the folder is
 * ctrun-stage-UID-XXXXXX. N is a slot: a run that writes to KEY-N has an exclusive lock on it;
 * after that, a run that uses it has a shared lock until its end. A copy in use is never
 * changed: if another run needs other content at the same time, it takes the next slot. The
 * kernel releases the locks of a process that dies, so no slot stays locked.
 *
 * Files are written in KEY-N.parts and renamed to their place when they are complete. */
#pragma once

#include <limits.h>

#include "launcher/stage/stage_manifest.h"
#include "launcher/stage/stage_text.h"

enum {
    STAGE_SLOTS_MAX = 8
};

struct stage_slot {
    int base;   /* ctrun-stage-UID */
    int top;    /* KEY-N; holds the lock */
    int parts;  /* KEY-N.parts; -1: shared, do not write */
    int number; /* the next slot to try */
    char name[STAGE_TEXT_NAME_MAX];
    char path[PATH_MAX]; /* of top */
    char folder[PATH_MAX];
};

/* Opens the user's folder below `base`. 0, CTRUN_E_STAGE. */
int stage_slot_open(struct stage_slot *slot, const char *base, struct ctrun_error *err);
/* Takes the next slot that can be locked; parts < 0: other runs use it, so it may only be read.
 * 0, CTRUN_E_STAGE: there is none. */
int stage_slot_next(struct stage_slot *slot, const uint8_t key[16],
                    struct ctrun_error *err);
/* Called when all files are complete: changes to a shared lock, so that other runs may use the copy
 * and none may change it. Removes the parts. 0, CTRUN_E_STAGE. */
int stage_slot_settle(struct stage_slot *slot, struct ctrun_error *err);
/* 0, CTRUN_E_STAGE: the disk has no room for `bytes` more, or is mounted noexec. */
int stage_slot_check_room(const struct stage_slot *slot, uint64_t bytes,
                          struct ctrun_error *err);
int stage_slot_check_exec(const struct stage_slot *slot, struct ctrun_error *err);
/* Removes the copy, unless another run uses it. */
void stage_slot_remove(struct stage_slot *slot);
void stage_slot_close(struct stage_slot *slot);
