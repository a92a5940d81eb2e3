/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of the handshake in which agent and rendezvous server prove to each other
 * that they know a shared secret (worker_sdk/wire/auth.h, seal.h, munge.h), for one connection
 * after another.
 *
 *     handshake_begin: RESUME, OFFER, HELLO ── handshake_on_message: OFFER, CHALLENGE -> PROOF, SERVER_PROOF
 *                                              └── handshake_is_over: WELCOME may be trusted
 *
 * It has no socket: it takes messages and returns messages. */
#pragma once

#include "worker_sdk/wire/seal.h"

struct handshake {
    /* Settings. */
    const struct ct_auth_token *token; /* kept; NULL or empty: none */
    bool uses_munge;                   /* the server's credential brings the token */
    bool wants_seal;
    /* Of this connection. */
    struct ct_auth_token session; /* `token`, or the credential's */
    struct ct_hello hello;
    uint8_t opening[CT_PROOF_BYTES];
    struct ct_seal_pair pair;
    uint8_t server_nonce[CT_NONCE_BYTES]; /* zero: no CHALLENGE came */
    uint8_t server_key[CT_OFFER_KEY_BYTES];
    bool has_offer;
    bool is_proven;
    struct ct_seal seal;
};

/* A new connection: the state of the one before is dropped. Appends RESUME, when its key is not
 * 0, OFFER, when one is needed, and HELLO. 0 or a negative errno. */
int handshake_begin(struct handshake *handshake, const struct ct_resume *resume,
                    const struct ct_hello *hello, struct ct_buf *out);
/* Takes OFFER, CHALLENGE or SERVER_PROOF, and appends the answer if there is one. 0;
 * CTRUN_E_AUTH: this server is not ours, so do not ask it again; another negative code: the
 * connection is broken. */
int handshake_on_message(struct handshake *handshake, const struct ct_message *message,
                         struct ct_buf *out, struct ctrun_error *err);
/* 0 when everything required is proven, else CTRUN_E_AUTH. */
int handshake_is_over(const struct handshake *handshake, struct ctrun_error *err);
void handshake_wipe(struct handshake *handshake);
