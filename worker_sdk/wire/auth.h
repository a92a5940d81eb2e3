/* SPDX-License-Identifier: Apache-2.0 */
/* Proof of a shared token, both ways, without ever sending it.
 *
 *   agent                               server
 *     HELLO + nonce ────────────────────▶        zero: the agent has no token
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
 * so that it is useless on another connection, for another run, or sent back to its sender. A proof
 * covers only the begin of the connection; later messages are encrypted and authenticated only if
 * the link is sealed. A side with a token never continues with a side that has none or another one.
 *
 * Not part of libctrun: only the executables link it, and libsodium with it. */
#pragma once

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    /* An eavesdropper of a proof can test tokens offline: they must not be guessable. */
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

/* The data that the proofs of one connection cover. All borrowed. */
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

/* Sets the token to `text` without white space at its end. -EINVAL: too short or too long, or not
 * one line of text; the message has no part of the token. */
int ct_auth_token_set(struct ct_auth_token *token, const char *text,
                      struct ctrun_error *err);
/* Reads the token from a file. CTRUN_E_USAGE: the file cannot be
 * read, is a pipe to which nobody writes, or other users than owner and group have any permission. */
int ct_auth_token_read(struct ct_auth_token *token, const char *path,
                       struct ctrun_error *err);
/* Reads CTRUN_TOKEN and removes it from this process's environment, so that neither children nor
 * /proc/PID/environ have it. 1; 0: not set or empty; CTRUN_E_USAGE. One thread only. */
int ct_auth_token_take_env(struct ct_auth_token *token, struct ctrun_error *err);
/* Makes a random token. */
int ct_auth_token_generate(struct ct_auth_token *token, struct ctrun_error *err);
void ct_auth_token_wipe(struct ct_auth_token *token);

/* ---- Proofs ---- */

/* Fresh for each connection, and never zero. 0 or a negative errno. */
int ct_auth_make_nonce(uint8_t nonce[CT_NONCE_BYTES]);
bool ct_auth_nonce_is_zero(const uint8_t nonce[CT_NONCE_BYTES]);
/* A hash of the agent's messages before any proof, so that a change on the way is detected.
 * `resume`: key 0 if none was sent. 0, -ENOMEM. */
int ct_auth_hash_opening(uint8_t out[CT_PROOF_BYTES], const struct ct_resume *resume,
                         const struct ct_hello *hello);
/* HMAC-SHA256 with the token as key over a label, the scope and `extra`: the base of proofs and
 * keys. */
void ct_auth_mac(uint8_t out[CT_PROOF_BYTES], const struct ct_auth_token *token,
                 const char *name, const struct ct_auth_scope *scope,
                 const uint8_t *extra, size_t extra_length);
void ct_auth_prove(uint8_t proof[CT_PROOF_BYTES], const struct ct_auth_token *token,
                   enum ct_auth_side side, const struct ct_auth_scope *scope);
/* Compares in constant time. False for an empty token. */
bool ct_auth_check(const uint8_t proof[CT_PROOF_BYTES],
                   const struct ct_auth_token *token, enum ct_auth_side side,
                   const struct ct_auth_scope *scope);
