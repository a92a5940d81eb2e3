/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what is on this host already, entry by entry in the order of the manifest: makes folders
 * and links as they should be, removes what does not belong there, and notes which chunks of each
 * file are missing. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "launcher/stage/stage_store_private.h"
#include "launcher/stage/stage_text.h"
#include "worker_sdk/base/clock.h"

enum {
    STEP_MS = 20
};

/* 1: the folder is right; 0: it is wrong, and may not be changed; or -errno. */
static int check_folder(struct stage_store *store, const struct stage_entry *entry)
{
    const char *name;
    const int dir = stage_tree_parent(&store->tree, entry->path, &name);
    struct stat info;
    int fd;
    int rc;

    if (dir < 0)
        return stage_store_is_ours(store) ? dir : 0;
    if (!stage_store_is_ours(store))
        return fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISDIR(info.st_mode);
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(info.st_mode) &&
        unlinkat(dir, name, 0) < 0)
        return -errno;
    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    (void)fchmodat(dir, name, 0700, 0); /* for openat(); not the final mode */
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    rc = stage_tree_prune(fd, entry->path, store->manifest);
    close(fd);
    return rc < 0 ? rc : 1;
}

static int check_link(struct stage_store *store, const struct stage_entry *entry)
{
    char target[PATH_MAX];
    char part[STAGE_TEXT_NAME_MAX];
    const char *name;
    const int dir = stage_tree_parent(&store->tree, entry->path, &name);
    ssize_t n;

    if (dir < 0)
        return stage_store_is_ours(store) ? dir : 0;
    n = readlinkat(dir, name, target, sizeof target - 1);
    if (n >= 0) {
        target[n] = '\0';
        if (strcmp(target, entry->target) == 0)
            return 1;
    }
    if (!stage_store_is_ours(store))
        return 0;
    stage_text_part(part, entry->path);
    (void)unlinkat(store->slot.parts, part, 0);
    if (symlinkat(entry->target, store->slot.parts, part) < 0)
        return -errno;
    n = stage_store_publish(store, part, entry);
    return n < 0 ? (int)n : 1;
}

/* Opens the file at the entry's path if type and size match; else -ENOENT. O_NONBLOCK: open() must
 * not wait for a FIFO. */
static int open_same(struct stage_store *store, const struct stage_entry *entry,
                     struct stat *info)
{
    const char *name;
    const int dir = stage_tree_parent(&store->tree, entry->path, &name);
    int fd;

    if (dir < 0)
        return dir;
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -ENOENT;
    if (fstat(fd, info) == 0 && S_ISREG(info->st_mode) &&
        (uint64_t)info->st_size == entry->size)
        return fd;
    close(fd);
    return -ENOENT;
}

static void need_all(struct stage_store *store, const struct stage_entry *entry)
{
    for (uint32_t i = 0; i < entry->chunks; i++)
        stage_set_add(&store->needs, entry->first_chunk + i);
}

/* Makes an empty file here: it has no chunk that would complete it. */
static int make_empty(struct stage_store *store, const struct stage_entry *entry)
{
    const int fd = stage_store_open_part(store, entry, O_CREAT);
    int rc;

    if (fd < 0)
        return fd;
    rc = stage_store_finish_file(store, entry, fd);
    close(fd);
    return rc < 0 ? rc : 1;
}

/* The file does not exist or differs: checks its part, if there is one. */
static int begin_part(struct stage_store *store, const struct stage_entry *entry)
{
    char name[STAGE_TEXT_NAME_MAX];
    struct stat info;

    if (!stage_store_is_ours(store))
        return 0;
    stage_text_part(name, entry->path);
    if (entry->chunks > 0 &&
        fstatat(store->slot.parts, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode) && (uint64_t)info.st_size == entry->size)
        store->checked = stage_store_open_part(store, entry, 0);
    if (store->checked < 0) { /* also if its mode forbids it */
        (void)stage_tree_remove(store->slot.parts, name);
        if (entry->chunks == 0)
            return make_empty(store, entry);
        need_all(store, entry);
    }
    store->is_part = true;
    store->offset = 0;
    return 1;
}

static int begin_file(struct stage_store *store, const struct stage_entry *entry)
{
    struct stat info;
    const int fd = open_same(store, entry, &info);
    int rc = 1;

    if (fd < 0)
        return begin_part(store, entry);
    if (!stage_store_has_meta(&info, entry))
        rc = !stage_store_is_ours(store) ? 0
             : info.st_uid != getuid()   ? -EPERM
                                         : stage_store_set_meta(fd, entry);
    if (rc < 0 || (rc == 0 && !stage_store_is_ours(store)) || entry->chunks == 0) {
        close(fd);
        return rc < 0 ? rc : rc > 0 || stage_store_is_ours(store);
    }
    store->checked = fd;
    store->is_part = false;
    store->offset = 0;
    return 1;
}

static void end_checked(struct stage_store *store)
{
    close(store->checked);
    store->checked = -1;
}

/* Called when a chunk of the file that is read has been compared. */
static int take_compared(struct stage_store *store, const struct stage_entry *entry,
                         uint32_t chunk, bool is_same)
{
    if (is_same)
        return 1;
    if (store->is_part) {
        stage_set_add(&store->needs, chunk);
        return 1;
    }
    end_checked(store);
    return begin_part(store, entry);
}

static int end_part(struct stage_store *store, const struct stage_entry *entry)
{
    int rc = 1;

    if (store->is_part && stage_set_next(&store->needs, entry->first_chunk) >=
                              entry->first_chunk + entry->chunks) {
        rc = stage_store_finish_file(store, entry, store->checked);
        if (rc == 0)
            rc = 1;
    }
    end_checked(store);
    return rc;
}

static int read_checked(struct stage_store *store)
{
    const struct stage_entry *entry = &store->manifest->entries[store->entry - 1];
    const uint32_t chunk = entry->first_chunk +
                           (uint32_t)(store->offset / STAGE_CHUNK_BYTES);
    const uint64_t in_chunk = store->offset % STAGE_CHUNK_BYTES;
    uint64_t wanted = stage_chunk_size(entry, chunk) - in_chunk;
    uint8_t sum[CT_DIGEST_BYTES];
    ssize_t n;
    int rc;

    if (wanted > STAGE_STORE_READ_BYTES)
        wanted = STAGE_STORE_READ_BYTES;
    n = pread(store->checked, store->data, (size_t)wanted, (off_t)store->offset);
    if (n <= 0)
        return n < 0 && errno == EINTR ? 1 : n < 0 ? -errno : -EIO;
    if (in_chunk == 0)
        ct_digest_init(&store->digest);
    ct_digest_add(&store->digest, store->data, (size_t)n);
    store->offset += (uint64_t)n;
    store->done += (uint64_t)n;
    if (store->offset % STAGE_CHUNK_BYTES != 0 && store->offset != entry->size)
        return 1;
    ct_digest_end(&store->digest, sum);
    rc = take_compared(store, entry, chunk,
                       memcmp(sum, store->manifest->sums[chunk], sizeof sum) == 0);
    if (rc == 1 && store->checked >= 0 && store->offset == entry->size)
        rc = end_part(store, entry);
    return rc;
}

static int check_entry(struct stage_store *store, const struct stage_entry *entry)
{
    switch (entry->kind) {
    case STAGE_FOLDER: return check_folder(store, entry);
    case STAGE_LINK: return check_link(store, entry);
    case STAGE_FILE: return begin_file(store, entry);
    }
    return -EINVAL;
}

int stage_store_begin(struct stage_store *store, struct ctrun_error *err)
{
    int rc = stage_slot_next(&store->slot, store->manifest->key, err);

    if (rc < 0)
        return rc;
    stage_tree_forget(&store->tree);
    stage_tree_init(&store->tree, store->slot.top);
    stage_set_deinit(&store->needs);
    if (stage_set_init(&store->needs, store->manifest->chunk_count) < 0)
        return ct_fail(err, CTRUN_E_STAGE, "out of memory");
    store->entry = 0;
    if (!stage_store_is_ours(store))
        return 0;
    rc = stage_tree_prune(store->slot.top, "", store->manifest);
    return rc < 0 ? stage_store_fail(store, "", rc, err) : 0;
}

static int end_check(struct stage_store *store, struct ctrun_error *err)
{
    const struct stage_manifest *manifest = store->manifest;
    const struct stage_set *needs = &store->needs;
    uint64_t bytes = 0;

    for (uint32_t i = stage_set_next(needs, 0); i < needs->size;
         i = stage_set_next(needs, i + 1))
        bytes += stage_chunk_size(stage_manifest_file(manifest, i), i);
    return stage_slot_check_room(&store->slot, bytes, err);
}

static int check_next(struct stage_store *store, struct ctrun_error *err)
{
    const struct stage_manifest *manifest = store->manifest;
    int rc;

    if (store->checked < 0 && store->entry == manifest->count)
        return end_check(store, err);
    rc = store->checked >= 0 ? read_checked(store)
                             : check_entry(store, &manifest->entries[store->entry++]);
    if (rc == 1)
        return 1;
    if (rc < 0)
        return stage_store_fail(store, manifest->entries[store->entry - 1].path, rc,
                                err);
    /* Another run uses the slot, and its content is not that of this manifest. */
    if (store->checked >= 0)
        end_checked(store);
    rc = stage_store_begin(store, err);
    return rc < 0 ? rc : 1;
}

int stage_store_check(struct stage_store *store, struct ctrun_error *err)
{
    const uint64_t until_ms = ct_deadline_ms(STEP_MS);
    int rc;

    do
        rc = check_next(store, err);
    while (rc == 1 && ct_left_ms(until_ms) > 0);
    return rc;
}
