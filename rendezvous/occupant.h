/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds this endpoint, for a person whose run has met another one here. */
#ifndef RENDEZVOUS_OCCUPANT_H
#define RENDEZVOUS_OCCUPANT_H

#include "rendezvous/dispatch.h"

/* " of user NAME" or " of uid N"; cut when it does not fit. */
void occupant_format_owner(char *dst, size_t size);
/* " (3/4 nodes, up 12 min)" of the only run that is served here; empty when none of its nodes
 * has come yet. */
void occupant_format(const struct dispatch *dispatch, char *dst, size_t size);

#endif
