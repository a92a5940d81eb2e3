/* SPDX-License-Identifier: Apache-2.0 */
/* The journal in a file of this machine: a sink for journal.h, and the reader of an earlier
 * server's file.
 *
 *     "ctrun journal 1\n", then frames (journal.h), appended
 *
 * Each batch is written with one write() before the agents are told: a killed server loses nothing.
 * It is not forced to the disk: after a power cut a machine is away for longer than the leases of
 * the runs it served, and journal.h tells what a lost batch means. When the file is read, an
 * incomplete tail is dropped, and damage before it is skipped: it ends or sets back only the run of
 * the damaged batch.
 *
 * The live batches are held in memory too. When the file is much larger than these, a new file is
 * written beside it, forced to the disk and renamed. A write that fails (full disk) is reported
 * once and counts as kept; a new file with all live batches replaces this one as soon as it can be
 * written. A server that starts on a full disk continues with the file as it was read. */
#pragma once

#include "rendezvous/journal/journal.h"
#include "worker_sdk/base/error.h"

struct journal_file;

/* `path`: the file, or a folder in which the file is ctrund.journal. Locks the file, reads it into
 * the book (initialised by the caller) and writes it anew with the live batches. now_ms: start of
 * the server. -EBUSY: another ctrund has the file. -EBADMSG: no journal; the file is not
 * touched. */
int journal_file_open(struct journal_file **out, const char *path,
                      struct journal_book *book, uint64_t now_ms,
                      struct ctrun_error *err);
/* Borrowed; lives as long as the file. */
const struct journal_sink *journal_file_sink(const struct journal_file *file);
/* Accepts NULL. */
void journal_file_close(struct journal_file *file);
