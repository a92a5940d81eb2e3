/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), as iSCSI and ext4 have it: finds damage, resists nobody. Pure; any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The sum of what `crc` is the sum of, and of these bytes behind it; 0 is the sum of nothing. */
uint32_t ct_crc32c(uint32_t crc, const void *data, size_t length);
/* The same, and they are copied to `to`, past the caches: for what is not read again soon. */
uint32_t ct_crc32c_copy(uint32_t crc, void *restrict to, const void *restrict data,
                        size_t length);
/* The sum without the processor's instruction, for tests. */
uint32_t ct_crc32c_plain(uint32_t crc, const void *data, size_t length);
