/* SPDX-License-Identifier: Apache-2.0 */
/* What a run did goes into the journal before agents hear of it. */
#pragma once

#include "rendezvous/journal/journal.h"

/* After each step, before its actions. `sink` NULL: nothing is kept. 0, or < 0: the journal did not
 * take it, and nothing of it may be told. */
int run_journal_keep(const struct journal_sink *sink, struct journal_mark *mark,
                     const struct journal_run *run);
