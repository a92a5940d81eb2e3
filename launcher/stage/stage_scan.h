/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what --stage names, in small steps, so that signals and connections are served between
 * them: walks the folders without following links, and takes the checksum of each chunk.
 *
 * What is neither file, folder nor link is refused, and so is what cannot be read. The folder
 * that copies go to is left out where it lies inside of a source. */
#pragma once

#include "launcher/stage/stage_manifest.h"

struct stage_scan;

/* `list` is PATH,PATH...; relative ones are below cwd. The sources are noted in `manifest`,
 * which is kept and grows. 0; CTRUN_E_USAGE: the list is wrong; CTRUN_E_STAGE: a path is
 * missing; -ENOMEM. */
int stage_scan_open(struct stage_scan **out, struct stage_manifest *manifest,
                    const char *list, const char *cwd, struct ctrun_error *err);
/* Goes on for some milliseconds. 1: there is more; 0: the manifest is whole; CTRUN_E_STAGE. */
int stage_scan_step(struct stage_scan *scan, struct ctrun_error *err);
/* Bytes that were read so far. */
uint64_t stage_scan_bytes(const struct stage_scan *scan);
void stage_scan_close(struct stage_scan *scan); /* NULL is fine */

/* Opens a file of the manifest for reading. A descriptor, or CTRUN_E_STAGE: it is gone, or has
 * another size or time than in the manifest. */
int stage_scan_open_file(const struct stage_manifest *manifest,
                         const struct stage_entry *file, struct ctrun_error *err);
