/* SPDX-License-Identifier: Apache-2.0 */
/* `ctrun --hosts a,b,c [options] program`: one command for all nodes.
 *
 *     ctrun (guard + this part) ──ssh──> ctrun --relay ──ssh──> ctrun --relay ...
 *        └── ctrun, if this machine          └── ctrun, the host's node, with its agent
 *            is one of the hosts
 *
 * Every host's node is an ordinary ctrun with the command line that was typed. It gets its rank, a
 * token, and the address of the rendezvous, which the first host serves. */
#pragma once

#include "launcher/options/option.h"
#include "worker_sdk/wire/auth.h"

/* True when the command line names hosts and this process is not the node of such a host. */
bool ssh_is_wanted(const struct options *options);
/* Runs the whole --hosts run; argv as typed. The exit code, or CTRUN_E_*: then nothing was
 * started. */
int ssh_run(const struct options *options, char **argv,
            const struct ct_auth_token *token, struct ctrun_error *err);
/* For --dry-run and --print-config: this process becomes the first node of such a run. 0, or
 * a code. */
int ssh_preview(const struct options *options, struct ctrun_error *err);
