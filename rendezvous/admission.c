/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/admission.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

struct admission {
    const struct ct_auth_token *token;
    struct ct_hello hello;
    uint8_t nonce[CT_NONCE_BYTES];
};

const char *admission_check(const struct ct_auth_token *token,
                            const struct ct_hello *hello)
{
    const bool has_token = !ct_auth_nonce_is_zero(hello->nonce);

    if (token && !has_token)
        return "this rendezvous asks for a token and you have none: give "
               "--rdzv-token-file or CTRUN_TOKEN on every node";
    if (!token && has_token)
        return "you have a token and this rendezvous has none: give --rdzv-token-file "
               "or CTRUN_TOKEN on every node, --token-file to ctrund";
    return NULL;
}

static struct ct_auth_scope scope_of(const struct admission *admission)
{
    return (struct ct_auth_scope){.run_id = admission->hello.run_id,
                                  .agent_nonce = admission->hello.nonce,
                                  .server_nonce = admission->nonce};
}

int admission_create(struct admission **out, const struct ct_auth_token *token,
                     const struct ct_hello *hello, struct ct_message *challenge)
{
    struct admission *admission = ct_zalloc(sizeof *admission);
    int rc;

    if (!admission)
        return -ENOMEM;
    if ((rc = ct_auth_make_nonce(admission->nonce)) < 0) {
        free(admission);
        return rc;
    }
    admission->token = token;
    admission->hello = *hello;
    challenge->kind = CT_MESSAGE_CHALLENGE;
    memcpy(challenge->challenge.nonce, admission->nonce, sizeof admission->nonce);
    *out = admission;
    return 0;
}

bool admission_prove(const struct admission *admission, const struct ct_proof *proof,
                     struct ct_message *reply)
{
    const struct ct_auth_scope scope = scope_of(admission);

    if (!ct_auth_check(proof->proof, admission->token, CT_AUTH_AGENT, &scope))
        return false;
    reply->kind = CT_MESSAGE_SERVER_PROOF;
    ct_auth_prove(reply->proof.proof, admission->token, CT_AUTH_SERVER, &scope);
    return true;
}

const struct ct_hello *admission_hello(const struct admission *admission)
{
    return &admission->hello;
}

void admission_destroy(struct admission *admission)
{
    free(admission);
}
