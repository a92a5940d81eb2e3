/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/admission.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/session/session_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/wire/munge.h"

/* Secrets of one connection; allocated only if needed, as this costs system calls. */
struct own_secret {
    struct ct_auth_token token; /* the token of that minute (MUNGE) */
    struct ct_seal_pair pair;
};

/* An agent between CHALLENGE and PROOF. The token is copied: the credential of the rules may be
 * renewed meanwhile. */
struct admission {
    const struct ct_auth_token *token; /* the token of the rules, or own->token */
    struct own_secret *own;            /* NULL: none */
    struct ct_hello hello;
    uint8_t opening[CT_PROOF_BYTES];
    uint8_t nonce[CT_NONCE_BYTES];
    bool is_sealed;
    uint8_t agent_key[CT_OFFER_KEY_BYTES];
};

bool admission_has_secret(const struct admission_rules *rules)
{
    return rules->token || rules->uses_munge;
}

static bool has_key(const struct admission_offer *offer)
{
    static const uint8_t none[CT_OFFER_KEY_BYTES];

    return memcmp(offer->key, none, sizeof none) != 0;
}

/* As admission_check(), for the secrets. */
static const char *check_secret(const struct admission_rules *rules,
                                const struct admission_offer *offer,
                                const struct ct_hello *hello)
{
    const bool has_secret = !ct_auth_nonce_is_zero(hello->nonce);

    if (rules->uses_munge && !offer->has_munge)
        return "this rendezvous asks for proof by MUNGE and you offer none: give the "
               "same --auth on every node";
    if (rules->token && !has_secret)
        return "this rendezvous asks for a token and you have none: give "
               "--rdzv-token-file or CTRUN_TOKEN on every node";
    if (!rules->uses_munge && offer->has_munge)
        return "you offer proof by MUNGE and this rendezvous does not use it: give the "
               "same --auth on every node, --munge to ctrund";
    if (!admission_has_secret(rules) && has_secret)
        return "you have a token and this rendezvous has none: give --rdzv-token-file "
               "or CTRUN_TOKEN on every node, --token-file to ctrund";
    return NULL;
}

const char *admission_check(const struct admission_rules *rules,
                            const struct admission_offer *offer,
                            const struct ct_hello *hello)
{
    const char *why = check_secret(rules, offer, hello);

    if (why)
        return why;
    if (rules->wants_seal && !has_key(offer))
        return "this rendezvous accepts only encrypted links, and this node offers "
               "none: give --encrypt on every node";
    if (has_key(offer) && !admission_has_secret(rules))
        return "you ask for an encrypted link and this rendezvous has no token: "
               "encryption without one protects nothing";
    return NULL;
}

static struct ct_auth_scope scope_of(const struct admission *admission)
{
    return (struct ct_auth_scope){
        .run_id = admission->hello.run_id,
        .agent_nonce = admission->hello.nonce,
        .server_nonce = admission->nonce,
        .agent_key = admission->is_sealed ? admission->agent_key : NULL,
        .server_key = admission->is_sealed ? admission->own->pair.public_key : NULL,
        .opening = admission->opening,
    };
}

/* One credential serves all agents of a minute: thousands may come at once. */
static int renew_credential(struct admission_rules *rules, struct ctrun_error *err)
{
    const uint64_t now_ms = ct_now_ms();
    int rc;

    if (rules->issued_ms != 0 && now_ms - rules->issued_ms < ADMISSION_CREDENTIAL_MS)
        return 0;
    if ((rc = ct_munge_issue(&rules->issued, rules->credential, err)) < 0)
        return rc;
    rules->issued_ms = now_ms ? now_ms : 1;
    return 0;
}

static int prepare(struct admission *admission, struct admission_rules *rules,
                   const struct admission_offer *offer, struct admission_reply *reply,
                   struct ctrun_error *err)
{
    int rc;

    *reply = (struct admission_reply){0};
    if ((rc = ct_auth_make_nonce(admission->nonce)) < 0)
        return ct_fail(err, rc, "the rendezvous server got no random bytes: %s",
                       strerror(-rc));
    memcpy(reply->challenge.nonce, admission->nonce, sizeof admission->nonce);
    if (rules->uses_munge) {
        if ((rc = renew_credential(rules, err)) < 0)
            return rc;
        reply->has_offer = true;
        memcpy(reply->offer.credential, rules->credential,
               sizeof reply->offer.credential);
    }
    admission->token = rules->token;
    if ((rules->uses_munge || has_key(offer)) &&
        !(admission->own = ct_secret_zalloc(sizeof *admission->own)))
        return ct_fail(err, -ENOMEM, "the rendezvous server is out of memory");
    if (rules->uses_munge) {
        admission->own->token = rules->issued;
        admission->token = &admission->own->token;
    }
    if (!has_key(offer))
        return 0;
    admission->is_sealed = reply->has_offer = true;
    memcpy(admission->agent_key, offer->key, sizeof admission->agent_key);
    if ((rc = ct_seal_make_pair(&admission->own->pair)) < 0)
        return ct_fail(err, rc, "the rendezvous server got no random bytes: %s",
                       strerror(-rc));
    memcpy(reply->offer.key, admission->own->pair.public_key, sizeof reply->offer.key);
    return 0;
}

int admission_create(struct admission **out, struct admission_rules *rules,
                     const struct admission_offer *offer,
                     const struct ct_resume *resume, const struct ct_hello *hello,
                     struct admission_reply *reply, struct ctrun_error *err)
{
    struct admission *admission = ct_zalloc(sizeof *admission);
    int rc;

    if (!admission || ct_auth_hash_opening(admission->opening, resume, hello) < 0) {
        admission_destroy(admission);
        return ct_fail(err, -ENOMEM, "the rendezvous server is out of memory");
    }
    admission->hello = *hello;
    if ((rc = prepare(admission, rules, offer, reply, err)) < 0) {
        admission_destroy(admission);
        return rc;
    }
    *out = admission;
    return 0;
}

/* Our proof is made only after the agent's proof was right: an agent without the token gets no
 * proof with which it could test tokens. */
bool admission_prove(struct admission *admission, const struct ct_proof *claim,
                     struct ct_proof *proof, struct ct_seal *seal)
{
    const struct ct_auth_scope scope = scope_of(admission);

    if (!ct_auth_check(claim->proof, admission->token, CT_AUTH_AGENT, &scope))
        return false;
    ct_auth_prove(proof->proof, admission->token, CT_AUTH_SERVER, &scope);
    return !admission->is_sealed ||
           ct_seal_begin(seal, &admission->own->pair, admission->token, CT_AUTH_SERVER,
                         &scope) == 0;
}

const struct ct_hello *admission_hello(const struct admission *admission)
{
    return &admission->hello;
}

void admission_destroy(struct admission *admission)
{
    if (!admission)
        return;
    ct_secret_free(admission->own);
    free(admission);
}
