/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as what --stage sends: a manifest, a list of needs, a piece of a file. A manifest that
 * decodes has only paths that are safe below a folder, and encodes to the same bytes; a list of
 * needs that decodes can be encoded, and decodes to the same set. */
#include <stdlib.h>
#include <string.h>

#include "launcher/stage/stage_manifest.h"
#include "launcher/stage/stage_piece.h"
#include "launcher/stage/stage_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    SET_SIZE = 5000,
    MESSAGE_BYTES = 64,
};

static void must(bool is_true)
{
    if (!is_true)
        abort();
}

/* The manifest has an entry for the folder of this path, and that entry is a folder. */
static void check_place(const struct stage_manifest *manifest, const char *path)
{
    char above[STAGE_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    const struct stage_entry *folder;

    must(stage_path_is_safe(path));
    if (!slash)
        return;
    memcpy(above, path, (size_t)(slash - path));
    above[slash - path] = '\0';
    folder = stage_manifest_find(manifest, above);
    must(folder && folder->kind == STAGE_FOLDER);
}

static void try_manifest(const uint8_t *data, size_t size)
{
    struct stage_manifest manifest;
    struct ct_buf buf;

    if (stage_manifest_decode(&manifest, data, size) < 0)
        return;
    for (uint32_t i = 0; i < manifest.count; i++) {
        check_place(&manifest, manifest.entries[i].path);
        must(stage_manifest_find(&manifest, manifest.entries[i].path) ==
             &manifest.entries[i]);
    }
    for (uint32_t i = 0; i < manifest.chunk_count; i++) {
        const struct stage_entry *file = stage_manifest_file(&manifest, i);

        must(i >= file->first_chunk && i - file->first_chunk < file->chunks);
        must(stage_chunk_size(file, i) > 0);
        must(stage_chunk_offset(file, i) + stage_chunk_size(file, i) <= file->size);
    }
    ct_buf_init(&buf, size + 1);
    must(stage_manifest_encode(&buf, &manifest) == 0);
    must(ct_buf_length(&buf) == size && memcmp(ct_buf_data(&buf), data, size) == 0);
    ct_buf_deinit(&buf);
    stage_manifest_deinit(&manifest);
}

static void try_set(const uint8_t *data, size_t size)
{
    uint8_t message[MESSAGE_BYTES];
    struct stage_set set;
    struct stage_set again;
    uint32_t from = 0;

    must(stage_set_init(&set, SET_SIZE) == 0 && stage_set_init(&again, SET_SIZE) == 0);
    if (stage_set_decode(&set, data, size) == 0) {
        while (from < set.size) {
            const size_t length = stage_set_encode(&set, &from, message,
                                                   sizeof message);

            must(stage_set_decode(&again, message, length) == 0);
        }
        must(set.count == again.count &&
             memcmp(set.bits, again.bits, (SET_SIZE / 64 + 1) * sizeof *set.bits) == 0);
    }
    stage_set_deinit(&set);
    stage_set_deinit(&again);
}

static void try_piece(const uint8_t *data, size_t size)
{
    struct stage_piece piece;

    if (stage_piece_decode(&piece, data, size) == 0)
        must(piece.length > 0 && piece.data + piece.length == data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_manifest(data, size);
    try_set(data, size);
    try_piece(data, size);
    return 0;
}
