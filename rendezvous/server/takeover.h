/* SPDX-License-Identifier: Apache-2.0 */
/* Take-over: a server continues the runs of an earlier server from its journal, and accepts their
 * agents. */
#pragma once

#include "rendezvous/session/dispatch.h"

/* Opens all runs of the book and takes their rounds. 0, -ENOMEM. */
int takeover_restore(struct runs *runs, struct journal_book *book);
/* `journal` is frames of journal.h. The server that wrote it has acknowledged no heartbeat that was
 * sent after served_ms. `term` is above that server's term. 0, -EBADMSG, -ENOMEM. */
int takeover_begin(struct dispatch *dispatch, uint64_t term, const void *journal,
                   size_t length, uint64_t served_ms, struct ctrun_error *err);
