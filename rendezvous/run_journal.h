/* SPDX-License-Identifier: Apache-2.0 */
/* Runs and the journal: what is kept before agents hear of it, and runs that begin from it. */
#ifndef RENDEZVOUS_RUN_JOURNAL_H
#define RENDEZVOUS_RUN_JOURNAL_H

#include "rendezvous/journal.h"
#include "rendezvous/run.h"

/* After each step, before its actions. 0, or < 0: the journal did not take it, and nothing of it
 * may be told: run_abandon(). */
int run_keep(struct run *run);
/* Closes the connections of its members and forgets the run. */
void run_abandon(struct run *run);
/* All runs of the book; their rounds are taken. 0, -ENOMEM. */
int run_restore_all(struct dispatch *dispatch, struct journal_book *book);

#endif
