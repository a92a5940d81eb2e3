/* SPDX-License-Identifier: Apache-2.0 */
/* An encrypted link between an agent and a server that share a token (auth.h).
 *
 *   agent                               server
 *     OFFER: key  ──────────────────────▶        X25519, made for this connection alone
 *     HELLO  ───────────────────────────▶
 *            ◀───────────────────── OFFER: key
 *            ◀─────────────────────── CHALLENGE
 *     PROOF  ───────────────────────────▶        over both keys too
 *            ◀─────────────────────── SERVER_PROOF
 *     from here on every frame, both ways, is SEALED
 *
 * This is the pattern that Noise calls NNpsk0, with HMAC-SHA256 as the proof of the shared token:
 *
 *     master = HMAC-SHA256(token, "ctrun seal", version, run id, nonces, keys, X25519(keys))
 *     one key a direction: crypto_kdf(master, 1: agent to server, 2: server to agent)
 *     body of SEALED = ChaCha20-Poly1305 (IETF) of the kind and body of a frame;
 *                      nonce: a counter of this direction; additional data: the frame's header
 *
 * So an eavesdropper learns only sizes and times, also if the token becomes known later. A frame
 * that is changed, left out, repeated or reordered is detected at once and ends the connection.
 * RESUME and HELLO are readable (run id, host name, pid, limits; the member's key, which is useless
 * without the token), but the proofs cover them too. Pure except for the random key.
 *
 * Not part of libctrun: see auth.h. */
#pragma once

#include "worker_sdk/wire/auth.h"

enum {
    CT_SEAL_KEY_BYTES = 32,
    CT_SEAL_TAG_BYTES = 16,
};

/* A key pair for one connection. */
struct ct_seal_pair {
    uint8_t public_key[CT_OFFER_KEY_BYTES];
    uint8_t secret_key[CT_SEAL_KEY_BYTES];
};

/* One end of a link. Zeroed: nothing is sealed. */
struct ct_seal {
    bool is_on;
    uint8_t send_key[CT_SEAL_KEY_BYTES];
    uint8_t receive_key[CT_SEAL_KEY_BYTES];
    uint64_t sent, received; /* the next nonces */
};

/* 0, or a negative errno: no random bytes. */
int ct_seal_make_pair(struct ct_seal_pair *pair);
/* Turns the seal on. `scope` names both public keys; `pair` is `side`'s own and is wiped.
 * -EPROTO: the other side's key is none. */
int ct_seal_begin(struct ct_seal *seal, struct ct_seal_pair *pair,
                  const struct ct_auth_token *token, enum ct_auth_side side,
                  const struct ct_auth_scope *scope);
void ct_seal_wipe(struct ct_seal *seal);

/* Appends the message as a SEALED frame, or plainly while the seal is off. As
 * ct_message_encode(). */
int ct_seal_encode(struct ct_seal *seal, struct ct_buf *out,
                   const struct ct_message *message);
/* The same for a frame that ct_message_encode() has made. */
int ct_seal_frame(struct ct_seal *seal, struct ct_buf *out,
                  const struct ct_frame *frame);
/* The frame inside `frame`, which is what the seal's state demands: a SEALED one, or any other
 * while it is off (then *inner is that one). `plain` has CT_FRAME_BODY_MAX_BYTES and holds what
 * *inner points to. 0, or -EBADMSG: close the connection. */
int ct_seal_decode(struct ct_seal *seal, const struct ct_frame *frame, uint8_t *plain,
                   struct ct_frame *inner);
