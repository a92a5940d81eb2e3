/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as the manifest of a sharded checkpoint. The right checksum is appended, so
 * that the decoder reads the rest. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/ckpt/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CRC_BYTES = 22
};

static void check(const struct ct_manifest *manifest)
{
    size_t count;

    for (size_t i = 0; i < manifest->shard_count; i++)
        if (strchr(manifest->shards[i].file, '/') || *manifest->shards[i].file == '.')
            __builtin_trap();
    for (size_t i = 0; i < manifest->piece_count; i++) {
        const struct ct_piece *piece = &manifest->pieces[i], *found;

        if (!ct_piece_is_sound(piece) || piece->owner >= manifest->shard_count)
            __builtin_trap();
        found = ct_manifest_find(manifest, piece->name, &count);
        if (!found || found > piece || piece >= found + count)
            __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_manifest manifest;
    struct ctrun_error err;
    char *text;

    if (size > CT_MANIFEST_MAX_BYTES || !(text = malloc(size + CRC_BYTES + 1)))
        return 0;
    memcpy(text, data, size);
    (void)snprintf(text + size, CRC_BYTES + 1, ",\"crc32c\":\"%08" PRIx32 "\"}\n",
                   ct_crc32c(0, data, size));
    if (ct_manifest_decode(&manifest, text, size + CRC_BYTES, &err) == 0) {
        check(&manifest);
        (void)ct_manifest_metadata(&manifest, "step");
        ct_manifest_deinit(&manifest);
    }
    free(text);
    return 0;
}
