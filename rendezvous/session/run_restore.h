/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that begin from a journal. */
#pragma once

#include "rendezvous/session/run.h"

/* All runs of the book; their rounds are taken. 0, -ENOMEM. */
int run_restore_all(struct runs *runs, struct journal_book *book);
