/* SPDX-License-Identifier: Apache-2.0 */
/* A server that goes on where another one had to stop: it takes the runs out of that one's
 * journal, and agents in. */
#ifndef RENDEZVOUS_SUCCESSION_H
#define RENDEZVOUS_SUCCESSION_H

#include "rendezvous/dispatch.h"

/* `journal` is frames of journal.h. Whoever wrote it has been silent for silence_ms: so long ago
 * at least its members have heard the last of it. 0, -EBADMSG, -ENOMEM. */
int succession_begin(struct dispatch *dispatch, const void *journal, size_t length,
                     uint64_t silence_ms, struct ctrun_error *err);

#endif
