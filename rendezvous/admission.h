/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent must show before its HELLO counts (worker_sdk/wire/auth.h): pure but for the
 * random nonce.
 *
 *     HELLO ── admission_check ──> refused
 *                  └── no token ──> let in
 *                  └── token ── admission_create = CHALLENGE ... PROOF ── admission_prove
 *                                                      SERVER_PROOF, let in <──┴──> refused
 */
#ifndef RENDEZVOUS_ADMISSION_H
#define RENDEZVOUS_ADMISSION_H

#include "worker_sdk/wire/auth.h"

struct admission;

/* NULL, or the sentence that refuses this HELLO: one side has a token, the other has none.
 * `token` NULL: none is asked for. */
const char *admission_check(const struct ct_auth_token *token,
                            const struct ct_hello *hello);
/* Keeps the token, copies the HELLO, and fills in the CHALLENGE. */
int admission_create(struct admission **out, const struct ct_auth_token *token,
                     const struct ct_hello *hello, struct ct_message *challenge);
/* True when the agent has the token; then `reply` is the server's own proof. */
bool admission_prove(const struct admission *admission, const struct ct_proof *proof,
                     struct ct_message *reply);
const struct ct_hello *admission_hello(const struct admission *admission);
void admission_destroy(struct admission *admission);

#endif
