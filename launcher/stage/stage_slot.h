/* SPDX-License-Identifier: Apache-2.0 */
/* Where copies lie on a host: BASE/ctrun-stage-UID/KEY-N/NAME; BASE is --stage-dir, else TMPDIR,
 * else /tmp; KEY is made of the paths that were staged.
 *
 * The folder of a user is his alone (0700, owner checked, no link followed): what is in it can be
 * believed. Where somebody else has made one of that name, it is ctrun-stage-UID-XXXXXX. N is a slot: whoever writes to KEY-N has an exclusive lock on it, a run that uses it a
 * shared one from then until its end. A copy in use is never changed: when a second run at the
 * same time wants it otherwise, it takes the next slot. The kernel gives locks back by itself
 * when a process dies, so nothing can be left locked.
 *
 * Files come about in KEY-N.parts and are renamed to their place when they are whole. */
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
    int parts;  /* KEY-N.parts; -1: not ours to write */
    int number; /* the next one to be tried */
    char name[STAGE_TEXT_NAME_MAX];
    char path[PATH_MAX]; /* of top */
    char folder[PATH_MAX];
};

/* Opens the user's folder below `base`. 0, CTRUN_E_STAGE. */
int stage_slot_open(struct stage_slot *slot, const char *base, struct ctrun_error *err);
/* Takes the next slot that can be locked; parts < 0: others use it, look but do not touch.
 * 0, CTRUN_E_STAGE: there is none. */
int stage_slot_next(struct stage_slot *slot, const uint8_t key[16],
                    struct ctrun_error *err);
/* Everything is in its place: others may use it too, nobody may change it. Removes the parts.
 * 0, CTRUN_E_STAGE. */
int stage_slot_settle(struct stage_slot *slot, struct ctrun_error *err);
/* CTRUN_E_STAGE when `bytes` more have no room; a program has to be allowed to run there. */
int stage_slot_check_room(const struct stage_slot *slot, uint64_t bytes,
                          struct ctrun_error *err);
int stage_slot_check_exec(const struct stage_slot *slot, struct ctrun_error *err);
/* Removes the copy, unless another run uses it. */
void stage_slot_remove(struct stage_slot *slot);
void stage_slot_close(struct stage_slot *slot);
