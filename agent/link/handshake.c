/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/link/handshake.h"

#include <errno.h>
#include <string.h>

#include "worker_sdk/wire/munge.h"

static bool has_token(const struct handshake *handshake)
{
    return handshake->token && handshake->token->length > 0;
}

static bool has_secret(const struct handshake *handshake)
{
    return has_token(handshake) || handshake->uses_munge;
}

/* What both proofs cover. Each side's nonce prevents the replay of an old proof; the opening
 * (RESUME and HELLO as they were sent) and the keys are covered, so that an attacker in between
 * cannot change them. */
static struct ct_auth_scope scope_of(const struct handshake *handshake)
{
    const bool is_sealed = handshake->wants_seal;

    return (struct ct_auth_scope){
        .run_id = handshake->hello.run_id,
        .agent_nonce = handshake->hello.nonce,
        .server_nonce = handshake->server_nonce,
        .agent_key = is_sealed ? handshake->pair.public_key : NULL,
        .server_key = is_sealed ? handshake->server_key : NULL,
        .opening = handshake->opening,
    };
}

static int append_offer(struct handshake *handshake, struct ct_buf *out)
{
    struct ct_offer offer = {.has_munge = handshake->uses_munge};
    int rc;

    if (handshake->wants_seal) {
        if ((rc = ct_seal_make_pair(&handshake->pair)) < 0)
            return rc;
        memcpy(offer.key, handshake->pair.public_key, sizeof offer.key);
    }
    return ct_message_encode(out,
                             &(struct ct_message){CT_MESSAGE_OFFER, .offer = &offer});
}

static int append_resume(const struct ct_resume *resume, struct ct_buf *out)
{
    const struct ct_message message = {CT_MESSAGE_RESUME, .resume = resume};

    return resume->key != 0 ? ct_message_encode(out, &message) : 0;
}

int handshake_begin(struct handshake *handshake, const struct ct_resume *resume,
                    const struct ct_hello *hello, struct ct_buf *out)
{
    const struct ct_message message = {CT_MESSAGE_HELLO, .hello = &handshake->hello};
    int rc;

    /* The state of the last connection does not count on this one. */
    handshake->is_proven = handshake->has_offer = false;
    handshake->hello = *hello;
    memset(handshake->server_nonce, 0, sizeof handshake->server_nonce);
    memset(handshake->server_key, 0, sizeof handshake->server_key);
    ct_seal_wipe(&handshake->seal);
    ct_auth_token_wipe(&handshake->session);
    if (has_token(handshake))
        handshake->session = *handshake->token;
    rc = append_resume(resume, out);
    if (rc == 0 && has_secret(handshake))
        rc = ct_auth_make_nonce(handshake->hello.nonce);
    /* After the nonce, because the hash covers the nonce. */
    if (rc == 0)
        rc = ct_auth_hash_opening(handshake->opening, resume, &handshake->hello);
    if (rc == 0 && (handshake->uses_munge || handshake->wants_seal))
        rc = append_offer(handshake, out);
    return rc < 0 ? rc : ct_message_encode(out, &message);
}

static int on_offer(struct handshake *handshake, const struct ct_offer *offer,
                    struct ctrun_error *err)
{
    if (handshake->has_offer || !ct_auth_nonce_is_zero(handshake->server_nonce))
        return ct_fail(err, -EPROTO, "second offer");
    handshake->has_offer = true;
    memcpy(handshake->server_key, offer->key, sizeof handshake->server_key);
    if (!handshake->uses_munge)
        return 0;
    if (!offer->credential[0])
        return ct_fail(err, CTRUN_E_AUTH,
                       "the rendezvous does not prove its user by MUNGE: give all "
                       "nodes the same --auth, and ctrund --munge");
    return ct_munge_read(&handshake->session, offer->credential, err);
}

static int on_challenge(struct handshake *handshake,
                        const struct ct_challenge *challenge, struct ct_buf *out,
                        struct ctrun_error *err)
{
    static const uint8_t none[CT_OFFER_KEY_BYTES];
    struct ct_proof proof;
    const struct ct_message message = {CT_MESSAGE_PROOF, .proof = &proof};
    struct ct_auth_scope scope;

    if (!has_secret(handshake))
        return ct_fail(err, CTRUN_E_AUTH,
                       "the rendezvous asks for a token and this node has none: give "
                       "--rdzv-token-file or " CT_ENV_TOKEN " on every node");
    if (handshake->session.length == 0)
        return ct_fail(
            err, CTRUN_E_AUTH,
            "the rendezvous asks for a token, but this node proves its user by "
            "MUNGE: give all nodes the same --auth");
    if (!ct_auth_nonce_is_zero(handshake->server_nonce)) /* one proof a connection */
        return ct_fail(err, -EPROTO, "second challenge");
    if (handshake->wants_seal && memcmp(handshake->server_key, none, sizeof none) == 0)
        return ct_fail(err, CTRUN_E_AUTH,
                       "the rendezvous does not encrypt, and this node was started "
                       "with --encrypt");
    memcpy(handshake->server_nonce, challenge->nonce, sizeof handshake->server_nonce);
    scope = scope_of(handshake);
    ct_auth_prove(proof.proof, &handshake->session, CT_AUTH_AGENT, &scope);
    return ct_message_encode(out, &message);
}

/* The proof covers the server's role (auth.h): our own proof, sent back to us, is not valid. */
static int on_proof(struct handshake *handshake, const struct ct_proof *message,
                    struct ctrun_error *err)
{
    const struct ct_auth_scope scope = scope_of(handshake);

    if (handshake->is_proven)
        return ct_fail(err, -EPROTO, "second proof");
    if (ct_auth_nonce_is_zero(handshake->server_nonce) ||
        !ct_auth_check(message->proof, &handshake->session, CT_AUTH_SERVER, &scope))
        return ct_fail(err, CTRUN_E_AUTH,
                       "the rendezvous could not prove that it has this node's token");
    handshake->is_proven = true;
    if (handshake->wants_seal &&
        ct_seal_begin(&handshake->seal, &handshake->pair, &handshake->session,
                      CT_AUTH_AGENT, &scope) < 0)
        return ct_fail(err, CTRUN_E_AUTH,
                       "the rendezvous sent an invalid key for encryption");
    return 0;
}

/* Each of these messages comes once: a second one, or one out of order, ends the connection. No
 * message of the server counts before on_proof() has checked its proof. */
int handshake_on_message(struct handshake *handshake, const struct ct_message *message,
                         struct ct_buf *out, struct ctrun_error *err)
{
    switch ((int)message->kind) {
    case CT_MESSAGE_OFFER: return on_offer(handshake, message->offer, err);
    case CT_MESSAGE_CHALLENGE:
        return on_challenge(handshake, message->challenge, out, err);
    case CT_MESSAGE_SERVER_PROOF: return on_proof(handshake, message->proof, err);
    default: return ct_fail(err, -EPROTO, "%s", ct_message_name((int)message->kind));
    }
}

int handshake_is_over(const struct handshake *handshake, struct ctrun_error *err)
{
    if (has_secret(handshake) && !handshake->is_proven)
        return ct_fail(err, CTRUN_E_AUTH,
                       "this node requires a proof (a token, or MUNGE), and the "
                       "rendezvous did not "
                       "prove itself: give all nodes and ctrund the same token, or the "
                       "same --auth");
    return 0;
}

void handshake_wipe(struct handshake *handshake)
{
    ct_seal_wipe(&handshake->seal);
    ct_auth_token_wipe(&handshake->session);
    explicit_bzero(&handshake->pair, sizeof handshake->pair);
}
