/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the sources of --stage in small steps, so that signals and connections are handled between
 * the steps: walks the folders without following links, and computes the checksum of each chunk.
 *
 * Fails for an entry that is no file, folder or link, or cannot be read. Leaves out the folder of
 * the copies (ctrun-stage-UID) if it is in a source. */
#pragma once

#include "launcher/stage/stage_manifest.h"

struct stage_scan;

/* `list` is PATH,PATH...; relative paths are below cwd. Adds the sources to `manifest`, which is
 * borrowed until close and grows. 0; CTRUN_E_USAGE: the list is wrong; CTRUN_E_STAGE: a path is
 * missing; -ENOMEM. */
int stage_scan_open(struct stage_scan **out, struct stage_manifest *manifest,
                    const char *list, const char *cwd, struct ctrun_error *err);
/* Reads for some milliseconds. 1: there is more; 0: the manifest is complete; CTRUN_E_STAGE. */
int stage_scan_step(struct stage_scan *scan, struct ctrun_error *err);
/* Bytes read so far. */
uint64_t stage_scan_bytes(const struct stage_scan *scan);
void stage_scan_close(struct stage_scan *scan); /* NULL is fine */

/* Opens a file of the manifest for reading. A descriptor, or CTRUN_E_STAGE: the file is gone, or
 * its size or time is not that of the manifest. */
int stage_scan_open_file(const struct stage_manifest *manifest,
                         const struct stage_entry *file, struct ctrun_error *err);
