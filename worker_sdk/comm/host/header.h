/* SPDX-License-Identifier: Apache-2.0 */
/* The header in front of data between two members: it describes the call, so that both ends can
 * check that they make the same one. Pure. */
#pragma once

#include "worker_sdk/comm/backend/backend.h"

/* dst has CT_HEADER_BYTES. */
void ct_header_write(unsigned char *dst, const struct ct_call *call);
/* The header of a message: equal at its sender and its receiver. */
void ct_header_write_message(unsigned char *dst, const struct ct_comm_message *message);
/* Reports how the call of rank `peer`, whose header is `theirs`, differs from the call of rank
 * `me`. Negative. */
int ct_header_fail(const struct ct_call *call, int me, const unsigned char *theirs,
                   int peer, struct ctrun_error *err);
/* The same for two messages of an ALL_TO_ALL_V: `own` is the header that rank `me` expects. */
int ct_header_fail_length(const struct ct_call *call, int me, const unsigned char *own,
                          const unsigned char *theirs, int peer,
                          struct ctrun_error *err);
