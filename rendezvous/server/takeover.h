/* SPDX-License-Identifier: Apache-2.0 */
/* Take-over: a server continues the runs of an earlier server from its journal, and accepts their
 * agents. */
#pragma once

#include "rendezvous/session/dispatch.h"

/* `journal` is frames of journal.h. Whoever wrote it has acknowledged no heartbeat that was sent
 * after served_ms. `term` is above its own. 0, -EBADMSG, -ENOMEM. */
int takeover_begin(struct dispatch *dispatch, uint64_t term, const void *journal,
                   size_t length, uint64_t served_ms, struct ctrun_error *err);
