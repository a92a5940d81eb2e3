/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/seal.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/random.h>

#include "worker_sdk/base/bytes.h"

_Static_assert(CT_SEAL_KEY_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES,
               "a direction's key is the cipher's");
_Static_assert(CT_SEAL_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES,
               "the tag is the cipher's");
_Static_assert(CT_SEAL_KEY_BYTES == crypto_kdf_KEYBYTES, "so is the master key");
_Static_assert(CT_OFFER_KEY_BYTES == crypto_scalarmult_BYTES,
               "a public key is a point");

int ct_seal_make_pair(struct ct_seal_pair *pair)
{
    const ssize_t n = getrandom(pair->secret_key, sizeof pair->secret_key, 0);

    if (n != (ssize_t)sizeof pair->secret_key)
        return n < 0 ? -errno : -EIO;
    return crypto_scalarmult_base(pair->public_key, pair->secret_key) == 0 ? 0 : -EIO;
}

int ct_seal_begin(struct ct_seal *seal, struct ct_seal_pair *pair,
                  const struct ct_auth_token *token, enum ct_auth_side side,
                  const struct ct_auth_scope *scope)
{
    static const char context[crypto_kdf_CONTEXTBYTES + 1] = "ctrunlnk";
    const bool is_agent = side == CT_AUTH_AGENT;
    const uint8_t *theirs = is_agent ? scope->server_key : scope->agent_key;
    uint8_t shared[crypto_scalarmult_BYTES];
    uint8_t master[CT_PROOF_BYTES];
    /* Fails for the few weak keys with a known result. */
    const int rc = crypto_scalarmult(shared, pair->secret_key, theirs) == 0 ? 0
                                                                            : -EPROTO;

    *seal = (struct ct_seal){0};
    if (rc == 0) {
        ct_auth_mac(master, token, "ctrun seal", scope, shared, sizeof shared);
        crypto_kdf_derive_from_key(is_agent ? seal->send_key : seal->receive_key,
                                   CT_SEAL_KEY_BYTES, 1, context, master);
        crypto_kdf_derive_from_key(is_agent ? seal->receive_key : seal->send_key,
                                   CT_SEAL_KEY_BYTES, 2, context, master);
        seal->is_on = true;
    }
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(master, sizeof master);
    sodium_memzero(pair->secret_key, sizeof pair->secret_key);
    return rc;
}

void ct_seal_wipe(struct ct_seal *seal)
{
    sodium_memzero(seal, sizeof *seal);
}

static void make_nonce(uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES],
                       uint64_t count)
{
    struct ct_writer out;

    ct_writer_init(&out, nonce, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
    ct_write_u32(&out, 0);
    ct_write_u64(&out, count);
}

static void make_header(uint8_t header[CT_FRAME_HEADER_BYTES], uint8_t version,
                        size_t length)
{
    struct ct_writer out;

    ct_writer_init(&out, header, CT_FRAME_HEADER_BYTES);
    ct_write_u8(&out, CT_FRAME_MAGIC_0);
    ct_write_u8(&out, CT_FRAME_MAGIC_1);
    ct_write_u8(&out, version);
    ct_write_u8(&out, CT_MESSAGE_SEALED);
    ct_write_u32(&out, (uint32_t)length);
}

/* `text` begins with the kind and body of a frame, `length` bytes in all; the tag is appended. */
static int append_sealed(struct ct_seal *seal, struct ct_buf *out, uint8_t *text,
                         size_t length)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    uint8_t header[CT_FRAME_HEADER_BYTES];
    int rc;

    make_nonce(nonce, seal->sent);
    make_header(header, CT_FRAME_VERSION, length + CT_SEAL_TAG_BYTES);
    (void)crypto_aead_chacha20poly1305_ietf_encrypt(text, NULL, text, length, header,
                                                    sizeof header, NULL, nonce,
                                                    seal->send_key); /* always 0 */
    rc = ct_frame_encode(out, CT_MESSAGE_SEALED, text, length + CT_SEAL_TAG_BYTES);
    if (rc == 0)
        seal->sent++;
    return rc;
}

int ct_seal_frame(struct ct_seal *seal, struct ct_buf *out,
                  const struct ct_frame *frame)
{
    const size_t length = 1 + frame->length;
    struct ct_buf text;
    uint8_t *at;
    int rc;

    if (!seal->is_on)
        return ct_frame_encode(out, frame->kind, frame->body, frame->length);
    if (length + CT_SEAL_TAG_BYTES > CT_FRAME_BODY_MAX_BYTES)
        return -EMSGSIZE;
    ct_buf_init(&text, CT_FRAME_BODY_MAX_BYTES);
    if ((rc = ct_buf_reserve(&text, length + CT_SEAL_TAG_BYTES, &at)) == 0) {
        at[0] = frame->kind;
        if (frame->length > 0)
            memcpy(at + 1, frame->body, frame->length);
        rc = append_sealed(seal, out, at, length);
    }
    ct_buf_deinit(&text);
    return rc;
}

int ct_seal_encode(struct ct_seal *seal, struct ct_buf *out,
                   const struct ct_message *message)
{
    struct ct_buf plain;
    struct ct_frame frame;
    int rc;

    if (!seal->is_on)
        return ct_message_encode(out, message);
    ct_buf_init(&plain, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    if ((rc = ct_message_encode(&plain, message)) == 0 &&
        (rc = ct_frame_decode(ct_buf_data(&plain), ct_buf_length(&plain), &frame)) > 0)
        rc = ct_seal_frame(seal, out, &frame);
    ct_buf_deinit(&plain);
    return rc;
}

int ct_seal_decode(struct ct_seal *seal, const struct ct_frame *frame, uint8_t *plain,
                   struct ct_frame *inner)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
    uint8_t header[CT_FRAME_HEADER_BYTES];
    unsigned long long length;

    *inner = *frame;
    if (!seal->is_on)
        return frame->kind == CT_MESSAGE_SEALED ? -EBADMSG : 0;
    if (frame->kind != CT_MESSAGE_SEALED || frame->length < 1 + CT_SEAL_TAG_BYTES ||
        frame->length > CT_FRAME_BODY_MAX_BYTES)
        return -EBADMSG;
    make_nonce(nonce, seal->received);
    make_header(header, frame->version, frame->length);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(plain, &length, NULL, frame->body,
                                                  frame->length, header, sizeof header,
                                                  nonce, seal->receive_key) != 0)
        return -EBADMSG;
    seal->received++;
    inner->kind = plain[0];
    inner->body = plain + 1;
    inner->length = (size_t)length - 1;
    return inner->kind == CT_MESSAGE_SEALED ? -EBADMSG : 0;
}
