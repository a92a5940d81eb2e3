/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises the protocol of a client by its first byte, as one port serves all protocols. Pure.
 *
 * A ctrun frame begins with 0xC7, HTTP with a capital letter, TCPStore (every dialect) with a
 * query number of at most 0x12. The three sets are disjoint. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum sniff_kind {
    SNIFF_MORE, /* nothing was sent yet */
    SNIFF_FRAME,
    SNIFF_STORE,
    SNIFF_HTTP,
    SNIFF_FOREIGN, /* TLS, SSH, noise: close */
};

enum sniff_kind sniff_first_bytes(const uint8_t *data, size_t length);
