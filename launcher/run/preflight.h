/* SPDX-License-Identifier: Apache-2.0 */
/* Checks this node before the first worker starts: warns of likely trouble (GPUs, shared memory,
 * open files) while it is cheap to fix, and refuses what can never work. */
#pragma once

#include "launcher/config/config.h"
#include "launcher/report/messages.h"

/* Refuses a loopback rendezvous address if the loopback interface is down. Sends nothing. 0 or
 * CTRUN_E_RESOURCES. */
int preflight_check_loopback(const struct config *config, struct ctrun_error *err);
/* Prints warnings. */
void preflight_warn(const struct config *config);
/* 0, or CTRUN_E_LOOPBACK and a block that says why: the batch system has given several hosts, and
 * the endpoint is a loopback address, so each host would reach only itself. */
int preflight_check_endpoint(struct messages_block *out, const struct config *config);
