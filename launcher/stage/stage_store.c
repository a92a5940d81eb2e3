/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_store.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "launcher/stage/stage_store_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

const struct stage_set *stage_store_needs(const struct stage_store *store)
{
    return &store->needs;
}

const char *stage_store_path(const struct stage_store *store)
{
    return store->slot.path;
}

uint64_t stage_store_done(const struct stage_store *store)
{
    return store->done;
}

/* ---- Taking ------------------------------------------------------------------------------ */

static void end_file(struct stage_store *store)
{
    ct_close(&store->file);
}

static int switch_file(struct stage_store *store, const struct stage_entry *entry)
{
    const uint32_t number = (uint32_t)(entry - store->manifest->entries);

    if (store->file >= 0 && store->file_entry == number)
        return 0;
    end_file(store);
    store->file = stage_store_open_part(store, entry, O_CREAT);
    store->file_entry = number;
    return store->file < 0 ? store->file : 0;
}

static int write_all(int fd, const uint8_t *data, size_t length, uint64_t offset)
{
    while (length > 0) {
        const ssize_t n = pwrite(fd, data, length, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        length -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Called when all bytes of store->chunk are written. */
static int end_chunk(struct stage_store *store, const struct stage_entry *entry,
                     struct ctrun_error *err)
{
    uint8_t sum[CT_DIGEST_BYTES];
    int rc = 0;

    ct_digest_end(&store->digest, sum);
    if (memcmp(sum, store->manifest->sums[store->chunk], sizeof sum) != 0)
        return ct_fail(err, CTRUN_E_STAGE,
                       "%.800s: the received data do not match their checksum: "
                       "perhaps the file was changed while it was staged; start again "
                       "when no process writes to it",
                       entry->path);
    stage_set_remove(&store->needs, store->chunk);
    if (stage_set_next(&store->needs, entry->first_chunk) <
        entry->first_chunk + entry->chunks)
        return 0;
    rc = stage_store_finish_file(store, entry, store->file);
    end_file(store);
    return rc < 0 ? stage_store_fail(store, entry->path, rc, err) : 0;
}

int stage_store_put(struct stage_store *store, uint32_t chunk, uint32_t offset,
                    const void *data, size_t length, struct ctrun_error *err)
{
    const struct stage_entry *entry;
    int rc;

    if (!stage_set_has(&store->needs, chunk))
        return 0;
    entry = stage_manifest_file(store->manifest, chunk);
    if (offset == 0) {
        store->chunk = chunk;
        store->filled = 0;
        ct_digest_init(&store->digest);
    }
    if (chunk != store->chunk || offset != store->filled || length == 0 ||
        length > stage_chunk_size(entry, chunk) - offset)
        return ct_fail(err, CTRUN_E_STAGE,
                       "%.800s: received a piece of the file out of order",
                       entry->path);
    rc = switch_file(store, entry);
    if (rc == 0)
        rc = write_all(store->file, data, length,
                       stage_chunk_offset(entry, chunk) + offset);
    if (rc < 0)
        return stage_store_fail(store, entry->path, rc, err);
    ct_digest_add(&store->digest, data, length);
    store->filled += (uint32_t)length;
    store->done += length;
    return store->filled == stage_chunk_size(entry, chunk)
               ? end_chunk(store, entry, err)
               : 0;
}

/* Sets mode and time of the folders, last and innermost first, because writing into a folder
 * changes its time. The owner keeps all permissions: else the next run could not change the
 * folder. */
static int settle_folders(struct stage_store *store, struct ctrun_error *err)
{
    const struct stage_manifest *manifest = store->manifest;

    for (uint32_t i = manifest->count; i-- > 0;) {
        struct stage_entry entry = manifest->entries[i];
        const char *name;
        int dir;
        int fd;
        int rc;

        if (entry.kind != STAGE_FOLDER)
            continue;
        entry.mode |= 0700;
        dir = stage_tree_parent(&store->tree, entry.path, &name);
        fd = dir < 0
                 ? dir
                 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        rc = fd >= 0 ? stage_store_set_meta(fd, &entry) : dir < 0 ? dir : -errno;
        ct_close(&fd);
        if (rc < 0)
            return stage_store_fail(store, entry.path, rc, err);
    }
    return 0;
}

int stage_store_settle(struct stage_store *store, struct ctrun_error *err)
{
    int rc = stage_store_is_ours(store) ? settle_folders(store, err) : 0;

    return rc < 0 ? rc : stage_slot_settle(&store->slot, err);
}

/* ---- Life -------------------------------------------------------------------------------- */

int stage_store_open(struct stage_store **out, const struct stage_manifest *manifest,
                     const char *base, struct ctrun_error *err)
{
    struct stage_store *store = ct_zalloc(sizeof *store);
    int rc;

    if (!store || !(store->data = ct_zalloc(STAGE_STORE_READ_BYTES))) {
        free(store);
        return ct_fail(err, CTRUN_E_STAGE, "out of memory");
    }
    store->manifest = manifest;
    store->checked = store->file = -1;
    stage_tree_init(&store->tree, -1);
    rc = stage_slot_open(&store->slot, base, err);
    if (rc == 0 && *manifest->program)
        rc = stage_slot_check_exec(&store->slot, err);
    if (rc == 0)
        rc = stage_store_begin(store, err);
    if (rc < 0) {
        stage_store_close(store, false);
        return rc;
    }
    *out = store;
    return 0;
}

void stage_store_close(struct stage_store *store, bool is_removed)
{
    if (!store)
        return;
    end_file(store);
    ct_close(&store->checked);
    stage_tree_forget(&store->tree);
    if (is_removed)
        stage_slot_remove(&store->slot);
    stage_slot_close(&store->slot);
    stage_set_deinit(&store->needs);
    free(store->data);
    free(store);
}
