/* SPDX-License-Identifier: Apache-2.0 */
/* MUNGE: a token for the processes of one user on the machines of one cluster, without a file.
 *
 * The server makes a random token and puts it into a credential that munged encrypts for its own
 * uid and no other; whoever of that uid has it decoded by the munged of his machine has the
 * token, and proves it as any other (auth.h). Both sides know by this that the other has the same
 * uid: the agent because the credential says who made it, the server because nobody else could
 * read it. A credential that was heard or decoded before is worth nothing without its token, so
 * a replay is no harm, and one credential serves all agents of a minute.
 *
 * libmunge is loaded when it is needed; munge_none.c stands in where its header is missing.
 * Calls block for a fraction of a millisecond. Any thread. */
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
