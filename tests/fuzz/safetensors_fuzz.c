/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the header of a checkpoint; the first eight are the data's length. */
#include <stdint.h>
#include <string.h>

#include "worker_sdk/ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_safetensors header;
    struct ctrun_error err;
    uint64_t data_bytes;
    uint64_t covered = 0;

    if (size < sizeof data_bytes)
        return 0;
    memcpy(&data_bytes, data, sizeof data_bytes);
    if (ct_safetensors_decode(&header, (const char *)data + 8, size - 8, data_bytes,
                              &err) < 0)
        return 0;
    for (size_t i = 0; i < header.count; i++) {
        if (header.entries[i].end > data_bytes ||
            ct_safetensors_find(&header, header.entries[i].name) != &header.entries[i])
            __builtin_trap();
        covered += header.entries[i].end - header.entries[i].begin;
    }
    if (covered != data_bytes)
        __builtin_trap();
    (void)ct_safetensors_metadata(&header, "format");
    ct_safetensors_deinit(&header);
    return 0;
}
