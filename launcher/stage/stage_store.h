/* SPDX-License-Identifier: Apache-2.0 */
/* The copies on one host: finds out what is there already and as it should be, takes what is
 * missing, puts every file into its place when it is whole.
 *
 *     CHECKING ──everything was looked at──> TAKING ──last chunk──> SETTLED
 *
 * What counts is the checksum of what lies there, read anew for every run, not its time or what
 * an earlier run has noted. A chunk that does not have its checksum is an error, never a file. */
#pragma once

#include "launcher/stage/stage_set.h"
#include "launcher/stage/stage_slot.h"

struct stage_store;

/* `manifest` is kept; base: see stage_slot.h. 0, CTRUN_E_STAGE. */
int stage_store_open(struct stage_store **out, const struct stage_manifest *manifest,
                     const char *base, struct ctrun_error *err);
/* Looks on for some milliseconds. 1: there is more; 0: stage_store_needs() is final; CTRUN_E_STAGE. */
int stage_store_check(struct stage_store *store, struct ctrun_error *err);
/* What it still needs; shrinks. */
const struct stage_set *stage_store_needs(const struct stage_store *store);
/* Bytes of a chunk that is needed, from its beginning to its end, none left out. Others are
 * ignored. 0, CTRUN_E_STAGE. */
int stage_store_put(struct stage_store *store, uint32_t chunk, uint32_t offset,
                    const void *data, size_t length, struct ctrun_error *err);
/* Nothing is needed any more: the last touches. 0, CTRUN_E_STAGE. */
int stage_store_settle(struct stage_store *store, struct ctrun_error *err);
/* The folder that has all names. */
const char *stage_store_path(const struct stage_store *store);
/* Bytes that were looked at or taken: grows while it is alive. */
uint64_t stage_store_done(const struct stage_store *store);
/* What is whole stays for the next run; `is_removed`: nothing does, unless others use it. */
void stage_store_close(struct stage_store *store, bool is_removed); /* NULL is fine */
