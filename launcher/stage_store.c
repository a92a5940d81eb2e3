/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/stage_text.h"
#include "launcher/stage_tree.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    STEP_MS = 20,
    READ_BYTES = 256 * 1024,
};

struct stage_store {
    const struct stage_manifest *manifest;
    struct stage_slot slot;
    struct stage_tree tree;
    struct stage_set needs;
    uint64_t done;
    uint8_t *data;
    /* Checking: the next entry, and a file of it that is being read. */
    uint32_t entry;
    int checked;
    uint64_t offset;
    bool is_part; /* it is the part that is read, not the file */
    struct ct_digest digest;
    /* Taking: the file that is open, and the chunk that is under way. */
    int file;
    uint32_t file_entry;
    uint32_t chunk;
    uint32_t filled;
};

static int fail(const struct stage_store *store, const char *path, int rc,
                struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_STAGE, "%.500s/%.400s: %s", store->slot.path, path,
                   strerror(-rc));
}

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

static bool is_ours(const struct stage_store *store)
{
    return store->slot.parts >= 0;
}

/* ---- Meta data --------------------------------------------------------------------------- */

static struct timespec time_of(const struct stage_entry *entry)
{
    int64_t seconds = entry->mtime_ns / 1000000000;
    int64_t rest = entry->mtime_ns % 1000000000;

    if (rest < 0) {
        rest += 1000000000;
        seconds--;
    }
    return (struct timespec){.tv_sec = seconds, .tv_nsec = rest};
}

static bool has_meta(const struct stat *info, const struct stage_entry *entry)
{
    const struct timespec time = time_of(entry);

    return (info->st_mode & 07777) == entry->mode &&
           info->st_mtim.tv_sec == time.tv_sec && info->st_mtim.tv_nsec == time.tv_nsec;
}

static int set_meta(int fd, const struct stage_entry *entry)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(entry)};

    return fchmod(fd, entry->mode) < 0 || futimens(fd, times) < 0 ? -errno : 0;
}

/* ---- Places ------------------------------------------------------------------------------ */

/* What is at the entry's place but a folder where none belongs is replaced by rename(). */
static int publish(struct stage_store *store, const char *part,
                   const struct stage_entry *entry)
{
    const char *name;
    const int dir = stage_tree_parent(&store->tree, entry->path, &name);
    int rc;

    if (dir < 0)
        return dir;
    if (renameat(store->slot.parts, part, dir, name) == 0)
        return 0;
    if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
        return -errno;
    rc = stage_tree_remove(dir, name);
    if (rc == 0 && renameat(store->slot.parts, part, dir, name) < 0)
        rc = -errno;
    return rc;
}

static int open_part(const struct stage_store *store, const struct stage_entry *entry,
                     int flags)
{
    char name[STAGE_TEXT_NAME_MAX];
    struct stat info;
    int fd;

    stage_text_part(name, entry->path);
    fd = openat(store->slot.parts, name,
                flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) ||
        ((uint64_t)info.st_size != entry->size &&
         ftruncate(fd, (off_t)entry->size) < 0)) {
        const int rc = -errno;

        close(fd);
        return rc < 0 ? rc : -EINVAL;
    }
    return fd;
}

/* `fd` is its part, and whole. */
static int finish_file(struct stage_store *store, const struct stage_entry *entry,
                       int fd)
{
    char name[STAGE_TEXT_NAME_MAX];
    const int rc = set_meta(fd, entry);

    stage_text_part(name, entry->path);
    return rc < 0 ? rc : publish(store, name, entry);
}

/* ---- Checking ---------------------------------------------------------------------------- */

/* 1: as it should be; 0: it is not, and is not ours to change; or -errno. */
static int check_folder(struct stage_store *store, const struct stage_entry *entry)
{
    const char *name;
    const int dir = stage_tree_parent(&store->tree, entry->path, &name);
    struct stat info;
    int fd;
    int rc;

    if (dir < 0)
        return is_ours(store) ? dir : 0;
    if (!is_ours(store))
        return fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
               S_ISDIR(info.st_mode);
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(info.st_mode) &&
        unlinkat(dir, name, 0) < 0)
        return -errno;
    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    (void)fchmodat(dir, name, 0700, 0); /* for the next line; the end sets it */
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
        return is_ours(store) ? dir : 0;
    n = readlinkat(dir, name, target, sizeof target - 1);
    if (n >= 0) {
        target[n] = '\0';
        if (strcmp(target, entry->target) == 0)
            return 1;
    }
    if (!is_ours(store))
        return 0;
    stage_text_part(part, entry->path);
    (void)unlinkat(store->slot.parts, part, 0);
    if (symlinkat(entry->target, store->slot.parts, part) < 0)
        return -errno;
    n = publish(store, part, entry);
    return n < 0 ? (int)n : 1;
}

/* Opens what lies at the file's place when it may be the same; -ENOENT when it cannot be. */
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

static int make_empty(struct stage_store *store, const struct stage_entry *entry)
{
    const int fd = open_part(store, entry, O_CREAT);
    int rc;

    if (fd < 0)
        return fd;
    rc = finish_file(store, entry, fd);
    close(fd);
    return rc < 0 ? rc : 1;
}

/* There is no such file: perhaps a part of it. */
static int begin_part(struct stage_store *store, const struct stage_entry *entry)
{
    char name[STAGE_TEXT_NAME_MAX];
    struct stat info;

    if (!is_ours(store))
        return 0;
    stage_text_part(name, entry->path);
    if (entry->chunks > 0 &&
        fstatat(store->slot.parts, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode) && (uint64_t)info.st_size == entry->size)
        store->checked = open_part(store, entry, 0);
    if (store->checked < 0) { /* or it has its file's rights already */
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
    if (!has_meta(&info, entry))
        rc = !is_ours(store)           ? 0
             : info.st_uid != getuid() ? -EPERM
                                       : set_meta(fd, entry);
    if (rc < 0 || (rc == 0 && !is_ours(store)) || entry->chunks == 0) {
        close(fd);
        return rc < 0 ? rc : rc > 0 || is_ours(store);
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

/* A chunk of the file that is read has been compared. */
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
        rc = finish_file(store, entry, store->checked);
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

    if (wanted > READ_BYTES)
        wanted = READ_BYTES;
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

/* From the beginning, in the next slot. */
static int begin(struct stage_store *store, struct ctrun_error *err)
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
    if (!is_ours(store))
        return 0;
    rc = stage_tree_prune(store->slot.top, "", store->manifest);
    return rc < 0 ? fail(store, "", rc, err) : 0;
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
        return fail(store, manifest->entries[store->entry - 1].path, rc, err);
    /* Another run uses it, and it is not what we want. */
    if (store->checked >= 0)
        end_checked(store);
    rc = begin(store, err);
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

/* ---- Taking ------------------------------------------------------------------------------ */

static void end_file(struct stage_store *store)
{
    if (store->file >= 0)
        close(store->file);
    store->file = -1;
}

static int switch_file(struct stage_store *store, const struct stage_entry *entry)
{
    const uint32_t number = (uint32_t)(entry - store->manifest->entries);

    if (store->file >= 0 && store->file_entry == number)
        return 0;
    end_file(store);
    store->file = open_part(store, entry, O_CREAT);
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

/* All bytes of store->chunk are there. */
static int end_chunk(struct stage_store *store, const struct stage_entry *entry,
                     struct ctrun_error *err)
{
    uint8_t sum[CT_DIGEST_BYTES];
    int rc = 0;

    ct_digest_end(&store->digest, sum);
    if (memcmp(sum, store->manifest->sums[store->chunk], sizeof sum) != 0)
        return ct_fail(err, CTRUN_E_STAGE,
                       "%.800s: what came does not have its checksum: it was changed "
                       "while it was being staged, or on its way",
                       entry->path);
    stage_set_remove(&store->needs, store->chunk);
    if (stage_set_next(&store->needs, entry->first_chunk) <
        entry->first_chunk + entry->chunks)
        return 0;
    rc = finish_file(store, entry, store->file);
    end_file(store);
    return rc < 0 ? fail(store, entry->path, rc, err) : 0;
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
        return ct_fail(err, CTRUN_E_STAGE, "%.800s: a piece came out of its turn",
                       entry->path);
    rc = switch_file(store, entry);
    if (rc == 0)
        rc = write_all(store->file, data, length,
                       stage_chunk_offset(entry, chunk) + offset);
    if (rc < 0)
        return fail(store, entry->path, rc, err);
    ct_digest_add(&store->digest, data, length);
    store->filled += (uint32_t)length;
    store->done += length;
    return store->filled == stage_chunk_size(entry, chunk)
               ? end_chunk(store, entry, err)
               : 0;
}

/* Folders last, innermost first: what was put into them has changed their times. Their owner
 * keeps all rights, or the next run could not change them. */
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
        rc = fd >= 0 ? set_meta(fd, &entry) : dir < 0 ? dir : -errno;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return fail(store, entry.path, rc, err);
    }
    return 0;
}

int stage_store_settle(struct stage_store *store, struct ctrun_error *err)
{
    int rc = is_ours(store) ? settle_folders(store, err) : 0;

    return rc < 0 ? rc : stage_slot_settle(&store->slot, err);
}

/* ---- Life -------------------------------------------------------------------------------- */

int stage_store_open(struct stage_store **out, const struct stage_manifest *manifest,
                     const char *base, struct ctrun_error *err)
{
    struct stage_store *store = ct_zalloc(sizeof *store);
    int rc;

    if (!store || !(store->data = ct_zalloc(READ_BYTES))) {
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
        rc = begin(store, err);
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
    if (store->checked >= 0)
        close(store->checked);
    stage_tree_forget(&store->tree);
    if (is_removed)
        stage_slot_remove(&store->slot);
    stage_slot_close(&store->slot);
    stage_set_deinit(&store->needs);
    free(store->data);
    free(store);
}
