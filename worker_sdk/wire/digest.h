/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of data sent from host to host: BLAKE2b with 256 bits (RFC 7693; as `b2sum -l 256`
 * prints). As strong as SHA-256 and four times as fast in libsodium: one core is enough for a
 * network of 10 Gbit/s.
 *
 * Not part of libctrun: see auth.h. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CT_DIGEST_BYTES = 32,
    CT_DIGEST_STATE_BYTES = 384,
};

/* Plain memory: may be copied. */
struct ct_digest {
    _Alignas(64) uint8_t state[CT_DIGEST_STATE_BYTES];
};

void ct_digest_init(struct ct_digest *digest);
void ct_digest_add(struct ct_digest *digest, const void *data, size_t length);
void ct_digest_end(struct ct_digest *digest, uint8_t out[CT_DIGEST_BYTES]);
/* All at once. */
void ct_digest_of(uint8_t out[CT_DIGEST_BYTES], const void *data, size_t length);
