/* SPDX-License-Identifier: Apache-2.0 */
/* MUNGE: a token for the processes of one user on the machines of one cluster, without a file.
 *
 * The server makes a random token and puts it into a credential that munged encrypts for the
 * server's uid only. An agent with this uid has it decoded by the munged of its machine, gets the
 * token and proves it like any other token (auth.h). So both sides know that the other has the same
 * uid: the agent because the credential names its maker, the server because no other user can
 * decode it. A credential is useless without its token, so a replay does no harm, and one
 * credential serves all agents of a minute.
 *
 * libmunge is loaded when needed; munge_none.c replaces this file if its header is missing. Calls
 * block for a fraction of a millisecond. Any thread. */
#pragma once

#include "worker_sdk/wire/auth.h"

/* True when the library is there and munged answers. */
bool ct_munge_is_usable(struct ctrun_error *err);
/* Makes a token and the credential that carries it. 0 or CTRUN_E_AUTH. */
int ct_munge_issue(struct ct_auth_token *token, char credential[CT_CREDENTIAL_MAX],
                   struct ctrun_error *err);
/* The token of a credential, if it was made by our own uid. 0 or CTRUN_E_AUTH. */
int ct_munge_read(struct ct_auth_token *token, const char *credential,
                  struct ctrun_error *err);
