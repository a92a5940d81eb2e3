/* SPDX-License-Identifier: Apache-2.0 */
/* One file of a host's copies: its part, its mode and time, its final place. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "launcher/stage/stage_store_private.h"
#include "launcher/stage/stage_text.h"
#include "worker_sdk/base/str.h"

int stage_store_fail(const struct stage_store *store, const char *path, int rc,
                     struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_STAGE, "%.500s/%.400s: %s", store->slot.path, path,
                   strerror(-rc));
}

bool stage_store_is_ours(const struct stage_store *store)
{
    return store->slot.parts >= 0;
}

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

bool stage_store_has_meta(const struct stat *info, const struct stage_entry *entry)
{
    const struct timespec time = time_of(entry);

    return (info->st_mode & 07777) == entry->mode &&
           info->st_mtim.tv_sec == time.tv_sec && info->st_mtim.tv_nsec == time.tv_nsec;
}

int stage_store_set_meta(int fd, const struct stage_entry *entry)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, time_of(entry)};

    return fchmod(fd, entry->mode) < 0 || futimens(fd, times) < 0 ? -errno : 0;
}

int stage_store_publish(struct stage_store *store, const char *part,
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

int stage_store_open_part(const struct stage_store *store,
                          const struct stage_entry *entry, int flags)
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

int stage_store_finish_file(struct stage_store *store, const struct stage_entry *entry,
                            int fd)
{
    char name[STAGE_TEXT_NAME_MAX];
    const int rc = stage_store_set_meta(fd, entry);

    stage_text_part(name, entry->path);
    return rc < 0 ? rc : stage_store_publish(store, name, entry);
}
