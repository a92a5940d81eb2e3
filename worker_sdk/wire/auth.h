/* SPDX-License-Identifier: Apache-2.0 */
/* Proof of a shared token, both ways, without ever sending it.
 *
 *   agent                               server
 *     HELLO + nonce ────────────────────▶        zero: I have no token
 *            ◀─────────────────────── CHALLENGE  the server's nonce; or REFUSE E_AUTH
 *     PROOF  ───────────────────────────▶        of the agent, over both nonces
 *            ◀─────────────────────── SERVER_PROOF, then WELCOME; or REFUSE E_AUTH
 *
 * A proof is HMAC-SHA256 with the token as key, over
 *
 *     u32 length and name of the side ("ctrun agent", "ctrun server")
 *     u8 protocol version, u32 length and run id, agent's nonce, server's nonce;
 *     for a link that is to be sealed (seal.h) also agent's key, server's key;
 *     SHA-256 of the agent's RESUME, if it sent one, and HELLO, as on the wire
 *
 * so that it is worth nothing on another connection, for another run, or sent back to who made
 * it. It says who was there when the connection began; what follows is encrypted and signed only
 * when the link is sealed. A side with a token never continues with one that has none, or another.
 *
 * Not part of libctrun: only the executables link it, and libsodium with it. */
#pragma once

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    /* Who hears a proof may try tokens at home: none that can be guessed. */
    CT_AUTH_TOKEN_MIN_BYTES = 16,
    CT_AUTH_TOKEN_MAX_BYTES = 256,
};

#define CT_ENV_TOKEN "CTRUN_TOKEN"

/* Plain memory: may be copied; ct_auth_token_wipe() when done. */
struct ct_auth_token {
    size_t length; /* 0: there is none */
    uint8_t bytes[CT_AUTH_TOKEN_MAX_BYTES];
};

enum ct_auth_side {
    CT_AUTH_AGENT,
    CT_AUTH_SERVER,
};

/* What one connection's proofs are about. All borrowed. */
struct ct_auth_scope {
    const char *run_id;
    const uint8_t *agent_nonce; /* CT_NONCE_BYTES each */
    const uint8_t *server_nonce;
    const uint8_t
        *agent_key; /* CT_OFFER_KEY_BYTES each; NULL: the link is not sealed */
    const uint8_t *server_key;
    const uint8_t *opening; /* CT_PROOF_BYTES, of ct_auth_hash_opening() */
};

/* ---- Tokens ---- */

/* Takes `text` as it is. -EINVAL: too short or too long; the sentence has no part of it. */
int ct_auth_token_set(struct ct_auth_token *token, const char *text,
                      struct ctrun_error *err);
/* Reads a file; white space at its end does not count. CTRUN_E_USAGE when it cannot be read, or
 * when others than owner and group have any right to it. */
int ct_auth_token_read(struct ct_auth_token *token, const char *path,
                       struct ctrun_error *err);
/* Takes CTRUN_TOKEN out of this process's environment, for its children and for
 * /proc/PID/environ. 1, or 0 when it is not set or empty; CTRUN_E_USAGE. One thread only. */
int ct_auth_token_take_env(struct ct_auth_token *token, struct ctrun_error *err);
/* A random one. */
int ct_auth_token_generate(struct ct_auth_token *token, struct ctrun_error *err);
void ct_auth_token_wipe(struct ct_auth_token *token);

/* ---- Proofs ---- */

/* Fresh for each connection, and never zero. 0 or a negative errno. */
int ct_auth_make_nonce(uint8_t nonce[CT_NONCE_BYTES]);
bool ct_auth_nonce_is_zero(const uint8_t nonce[CT_NONCE_BYTES]);
/* What the agent said before anybody had proven anything: nobody may have changed it on the way.
 * `resume`: its key is 0 when there was none. 0, -ENOMEM. */
int ct_auth_hash_opening(uint8_t out[CT_PROOF_BYTES], const struct ct_resume *resume,
                         const struct ct_hello *hello);
/* HMAC-SHA256 with the token as key over a label, the scope and `extra`: what proofs and keys are
 * made of. */
void ct_auth_mac(uint8_t out[CT_PROOF_BYTES], const struct ct_auth_token *token,
                 const char *name, const struct ct_auth_scope *scope,
                 const uint8_t *extra, size_t extra_length);
void ct_auth_prove(uint8_t proof[CT_PROOF_BYTES], const struct ct_auth_token *token,
                   enum ct_auth_side side, const struct ct_auth_scope *scope);
/* In constant time. An empty token proves nothing. */
bool ct_auth_check(const uint8_t proof[CT_PROOF_BYTES],
                   const struct ct_auth_token *token, enum ct_auth_side side,
                   const struct ct_auth_scope *scope);
