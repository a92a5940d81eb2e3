/* SPDX-License-Identifier: Apache-2.0 */
/* The journal in a file of this machine: a sink for journal.h, and what an earlier server left.
 *
 *     "ctrun journal 1\n", then frames (journal.h), appended
 *
 * Each batch is in the kernel before the agents hear of it, with one write(): a killed server
 * loses nothing. It is not forced to the disk: a machine that lost its power is away for longer
 * than the leases of the runs it served, and what a gap means stands in journal.h. A tail that was
 * cut off is dropped when the file is read, and what is damaged before it is skipped: it ends the
 * run that it tells of, or sets it back, and no other.
 *
 * The live batches are held in memory too. When the file has grown well above them it is written
 * anew beside itself, forced to the disk and renamed. A write that fails (full disk) is reported once,
 * counts as kept, and is made good by a new file as soon as one can be written. A server that begins
 * on a full disk continues with the file as it was read. */
#pragma once

#include "rendezvous/journal/journal.h"
#include "worker_sdk/base/error.h"

struct journal_file;

/* `path`: the file, or a folder, where it is named ctrund.journal. Locks it, reads it into the book
 * (init by the caller) and begins again with what is live. now_ms: the server begins. -EBUSY: another
 * ctrund has it. A file that is no journal is left alone: -EBADMSG. */
int journal_file_open(struct journal_file **out, const char *path,
                      struct journal_book *book, uint64_t now_ms,
                      struct ctrun_error *err);
/* Borrowed; lives as long as the file. */
const struct journal_sink *journal_file_sink(const struct journal_file *file);
/* NULL is fine. */
void journal_file_close(struct journal_file *file);
