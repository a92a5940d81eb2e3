/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at this node before the first worker starts: what will hurt is told while it is cheap to
 * mend (GPUs, shared memory, open files), and what can never work is refused. */
#pragma once

#include "launcher/config/config.h"
#include "launcher/report/messages.h"

/* Refuses a machine whose own address, where the nodes meet, leads nowhere. Sends nothing. 0 or CTRUN_E_RESOURCES. */
int preflight_check_loopback(const struct config *config, struct ctrun_error *err);
/* Prints warnings; removes what dead processes of this user left in /dev/shm. */
void preflight_warn(const struct config *config);
/* 0, or CTRUN_E_LOOPBACK and a block that says why: a batch system has given other hosts, and the
 * endpoint is this machine for each of them. */
int preflight_check_endpoint(struct messages_block *out, const struct config *config);
