/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), as in iSCSI and ext4: detects damage, but no attack. Pure; any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The sum of the bytes that `crc` covers, followed by these bytes; 0 is the sum of no bytes. */
uint32_t ct_crc32c(uint32_t crc, const void *data, size_t length);
/* The same, and copies the bytes to `to`, past the caches: for data that is not read again soon. */
uint32_t ct_crc32c_copy(uint32_t crc, void *restrict to, const void *restrict data,
                        size_t length);
/* The sum without the processor's instruction, for tests. */
uint32_t ct_crc32c_plain(uint32_t crc, const void *data, size_t length);
