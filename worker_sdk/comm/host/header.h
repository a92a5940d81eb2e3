/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in front of data between two members: what the call is, so that both ends know whether
 * they mean the same. Pure. */
#pragma once

#include "worker_sdk/comm/backend/backend.h"

/* dst has CT_HEADER_BYTES. */
void ct_header_write(unsigned char *dst, const struct ct_call *call);
/* Of a message: the same from its sender and its receiver. */
void ct_header_write_message(unsigned char *dst, const struct ct_comm_message *message);
/* Says how rank `peer`, which sent `theirs`, differs from what rank `me` calls. Negative. */
int ct_header_fail(const struct ct_call *call, int me, const unsigned char *theirs,
                   int peer, struct ctrun_error *err);
