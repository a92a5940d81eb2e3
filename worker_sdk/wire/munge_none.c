/* SPDX-License-Identifier: Apache-2.0 */
/* A build without munge.h. */
#include "worker_sdk/wire/munge.h"

static int fail(struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_AUTH,
                   "MUNGE: this ctrun was built without libmunge-dev");
}

bool ct_munge_is_usable(struct ctrun_error *err)
{
    (void)fail(err);
    return false;
}

int ct_munge_issue(struct ct_auth_token *token, char credential[CT_CREDENTIAL_MAX],
                   struct ctrun_error *err)
{
    (void)token;
    credential[0] = '\0';
    return fail(err);
}

int ct_munge_read(struct ct_auth_token *token, const char *credential,
                  struct ctrun_error *err)
{
    (void)token;
    (void)credential;
    return fail(err);
}
