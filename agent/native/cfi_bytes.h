/* SPDX-License-Identifier: Apache-2.0 */
/* A cursor over bytes of call frame information. Errors are sticky: a read beyond the end gives 0,
 * and is_bad stays set. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cfi_bytes {
    const uint8_t *at, *end; /* borrowed */
    bool is_bad;
};

/* Little-endian, 1 to 8 bytes. */
uint64_t cfi_bytes_take(struct cfi_bytes *in, size_t size);
int64_t cfi_bytes_take_signed(struct cfi_bytes *in, size_t size);
/* LEB128; bits beyond 64 are dropped. */
uint64_t cfi_bytes_take_uleb(struct cfi_bytes *in);
int64_t cfi_bytes_take_sleb(struct cfi_bytes *in);
/* The next `length` bytes, as a separate cursor. */
struct cfi_bytes cfi_bytes_take_part(struct cfi_bytes *in, uint64_t length);
/* A pointer with this encoding (DW_EH_PE_*), whose first byte is at `address`: absolute, or
 * relative to that address. */
uint64_t cfi_bytes_take_pointer(struct cfi_bytes *in, uint8_t encoding,
                                uint64_t address);
