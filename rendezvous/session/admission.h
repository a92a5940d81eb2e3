/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent must prove before its HELLO counts (worker_sdk/wire/auth.h, seal.h, munge.h). Pure
 * except for random bytes and the clock of a credential.
 *
 *     OFFER, HELLO ── admission_check ──> refused
 *                         └── no secret ──> let in
 *                         └── a secret ── admission_create = OFFER, CHALLENGE ... PROOF ── admission_prove
 *                                                           SERVER_PROOF, let in <──┴──> refused
 * */
#pragma once

#include "worker_sdk/wire/seal.h"

struct admission;

/* What the server demands of all agents. Zeroed: nothing. */
struct admission_rules {
    const struct ct_auth_token *token; /* borrowed; NULL: no token is needed */
    bool uses_munge; /* the server makes the token; MUNGE carries it */
    bool wants_seal;
    /* With MUNGE: token and credential of the present minute. */
    struct ct_auth_token issued;
    char credential[CT_CREDENTIAL_MAX];
    uint64_t issued_ms; /* 0: none yet */
};

/* The needed parts of an agent's OFFER; zeroed: none came. */
struct admission_offer {
    uint8_t key[CT_OFFER_KEY_BYTES];
    bool has_munge;
};

/* True if agents must prove a secret. */
bool admission_has_secret(const struct admission_rules *rules);
/* NULL, or why this HELLO is refused: agent and server do not use the same kind of secret. */
const char *admission_check(const struct admission_rules *rules,
                            const struct admission_offer *offer,
                            const struct ct_hello *hello);
/* Copies OFFER and HELLO; `resume` has key 0 when none came. *answer is the OFFER to send first, if has_answer, and *challenge what
 * follows. 0, -ENOMEM, CTRUN_E_AUTH (munged does not answer: `err` says why). */
struct admission_reply {
    bool has_offer;
    struct ct_offer offer;
    struct ct_challenge challenge;
};
int admission_create(struct admission **out, struct admission_rules *rules,
                     const struct admission_offer *offer,
                     const struct ct_resume *resume, const struct ct_hello *hello,
                     struct admission_reply *reply, struct ctrun_error *err);
/* True when the agent has the token; then `proof` is the server's own, and *seal is on if the
 * agent has asked for it: from the next message on. */
bool admission_prove(struct admission *admission, const struct ct_proof *claim,
                     struct ct_proof *proof, struct ct_seal *seal);
const struct ct_hello *admission_hello(const struct admission *admission);
void admission_destroy(struct admission *admission);
