/* SPDX-License-Identifier: Apache-2.0 */
/* The copies on one host: checks which files exist already and are right, writes the missing
 * chunks, and moves every file to its place when it is complete.
 *
 *     CHECKING ──all entries checked──> TAKING ──last chunk──> SETTLED
 *
 * Existing files are compared by checksum and read again for every run; their time, or notes of
 * an earlier run, are not trusted. A received chunk with a wrong checksum is an error: its file
 * is never put into its place. */
#pragma once

#include "launcher/stage/stage_set.h"
#include "launcher/stage/stage_slot.h"

struct stage_store;

/* `manifest` is borrowed until close; base: see stage_slot.h. 0, CTRUN_E_STAGE. */
int stage_store_open(struct stage_store **out, const struct stage_manifest *manifest,
                     const char *base, struct ctrun_error *err);
/* Checks for some milliseconds. 1: there is more; 0: stage_store_needs() is final;
 * CTRUN_E_STAGE. */
int stage_store_check(struct stage_store *store, struct ctrun_error *err);
/* The chunks that are still missing; the set shrinks. */
const struct stage_set *stage_store_needs(const struct stage_store *store);
/* Writes bytes of a needed chunk; they must arrive in order and without gaps. Ignores chunks that
 * are not needed. 0, CTRUN_E_STAGE. */
int stage_store_put(struct stage_store *store, uint32_t chunk, uint32_t offset,
                    const void *data, size_t length, struct ctrun_error *err);
/* Called when no chunk is missing: sets the folders' modes and times. 0, CTRUN_E_STAGE. */
int stage_store_settle(struct stage_store *store, struct ctrun_error *err);
/* The folder of all copies (KEY-N). */
const char *stage_store_path(const struct stage_store *store);
/* Bytes checked or received so far. */
uint64_t stage_store_done(const struct stage_store *store);
/* Complete files stay for the next run. `is_removed`: removes the copy, unless another run uses
 * it. */
void stage_store_close(struct stage_store *store, bool is_removed); /* NULL is fine */
