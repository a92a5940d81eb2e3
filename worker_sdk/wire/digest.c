/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/digest.h"

#include <sodium.h>

_Static_assert(sizeof(crypto_generichash_state) == CT_DIGEST_STATE_BYTES,
               "a digest holds libsodium's state");
_Static_assert(_Alignof(struct ct_digest) >= _Alignof(crypto_generichash_state),
               "and where it may lie");

static crypto_generichash_state *state_of(struct ct_digest *digest)
{
    union {
        struct ct_digest *digest;
        crypto_generichash_state *state;
    } view = {.digest = digest};

    return view.state;
}

void ct_digest_init(struct ct_digest *digest)
{
    const int rc = sodium_init(); /* chooses the fast code for this CPU, once */

    (void)rc; /* without it the plain code works */
    (void)crypto_generichash_init(state_of(digest), NULL, 0, CT_DIGEST_BYTES);
}

void ct_digest_add(struct ct_digest *digest, const void *data, size_t length)
{
    (void)crypto_generichash_update(state_of(digest), data, length);
}

void ct_digest_end(struct ct_digest *digest, uint8_t out[CT_DIGEST_BYTES])
{
    (void)crypto_generichash_final(state_of(digest), out, CT_DIGEST_BYTES);
}

void ct_digest_of(uint8_t out[CT_DIGEST_BYTES], const void *data, size_t length)
{
    struct ct_digest digest;

    ct_digest_init(&digest);
    ct_digest_add(&digest, data, length);
    ct_digest_end(&digest, out);
}
