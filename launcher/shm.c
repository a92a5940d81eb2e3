/* SPDX-License-Identifier: Apache-2.0 */
/* Processes are looked at only when there is a candidate, and there is mostly none. A segment is
 * mapped by who made it from the moment on that others learn its name, so that a file without any
 * user is a dead one's; the age is for the moment before. */
#include "launcher/shm.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    CANDIDATES_MAX = 256, /* the rest has its turn at the next start */
};

struct candidate {
    char name[NAME_MAX + 1];
    dev_t device;
    ino_t inode;
    uint64_t bytes;
    bool is_used;
};

struct candidates {
    const char *folder;
    struct candidate *list; /* NULL: there is none */
    int count;
};

static bool is_known_name(const char *name)
{
    static const char *const prefixes[] = {"nccl-", "torch_", "psm_", "gloo-"};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (ct_starts_with(name, prefixes[i]))
            return true;
    return false;
}

static void add_candidate(struct candidates *all, const char *name, uint64_t min_age_s)
{
    char path[PATH_MAX];
    struct candidate *candidate;
    struct stat info;
    const time_t now = time(NULL);

    if (ct_format(path, sizeof path, "%s/%s", all->folder, name) < 0 ||
        lstat(path, &info) < 0 || !S_ISREG(info.st_mode) || info.st_uid != getuid() ||
        info.st_mtime > now || (uint64_t)(now - info.st_mtime) < min_age_s)
        return;
    if (!all->list && !(all->list = ct_zalloc_array(CANDIDATES_MAX, sizeof *all->list)))
        return;
    candidate = &all->list[all->count];
    (void)ct_copy(candidate->name, sizeof candidate->name, name);
    candidate->device = info.st_dev;
    candidate->inode = info.st_ino;
    candidate->bytes = (uint64_t)info.st_blocks * 512;
    candidate->is_used = false;
    all->count++;
}

static void find_candidates(struct candidates *all, uint64_t min_age_s)
{
    DIR *dir = opendir(all->folder);

    if (!dir)
        return;
    for (struct dirent *entry; all->count < CANDIDATES_MAX && (entry = readdir(dir));)
        if (is_known_name(entry->d_name))
            add_candidate(all, entry->d_name, min_age_s);
    closedir(dir);
}

/* ---- Who uses them ------------------------------------------------------------------- */

static void mark_used(struct candidates *all, const char *path)
{
    struct stat info;

    if (stat(path, &info) < 0)
        return;
    for (int i = 0; i < all->count; i++)
        if (all->list[i].inode == info.st_ino && all->list[i].device == info.st_dev)
            all->list[i].is_used = true;
}

/* Every link in /proc/PID/fd or /proc/PID/map_files. */
static void look_at_links(struct candidates *all, const char *pid, const char *what)
{
    char path[PATH_MAX];
    DIR *dir;

    (void)ct_format(path, sizeof path, "/proc/%s/%s", pid, what);
    if (!(dir = opendir(path)))
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && ct_format(path, sizeof path, "/proc/%s/%s/%s",
                                                 pid, what, entry->d_name) >= 0)
            mark_used(all, path);
    closedir(dir);
}

/* Names in /proc/PID/maps: map_files is for root alone. A file in another mount namespace has
 * another path there, but the same inode. */
static void look_at_maps(struct candidates *all, const char *pid)
{
    char path[64];
    char line[PATH_MAX + 128];
    FILE *file;
    unsigned long inode;

    (void)ct_format(path, sizeof path, "/proc/%.20s/maps", pid);
    if (!(file = fopen(path, "re")))
        return;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode != 0)
            for (int i = 0; i < all->count; i++)
                if (all->list[i].inode == inode)
                    all->list[i].is_used = true; /* whatever file system: careful */
    (void)fclose(file);
}

static void find_users(struct candidates *all)
{
    DIR *dir = opendir("/proc");

    for (int i = 0; !dir && i < all->count; i++)
        all->list[i].is_used = true; /* nobody can be asked */
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        look_at_maps(all, entry->d_name);
        look_at_links(all, entry->d_name, "fd");
    }
    closedir(dir);
}

/* The first PID namespace has this inode in every kernel. */
static bool sees_everybody(void)
{
    char name[64];
    const ssize_t n = readlink("/proc/self/ns/pid", name, sizeof name - 1);

    name[n > 0 ? n : 0] = '\0';
    return strcmp(name, "pid:[4026531836]") == 0;
}

void shm_sweep(struct shm_sweep *out, const char *folder, uint64_t min_age_s)
{
    struct candidates all = {.folder = folder};
    const bool is_sure = sees_everybody();

    *out = (struct shm_sweep){0};
    find_candidates(&all, min_age_s);
    if (all.count > 0)
        find_users(&all);
    for (int i = 0; i < all.count; i++) {
        const struct candidate *candidate = &all.list[i];
        char path[PATH_MAX];

        if (candidate->is_used)
            continue;
        if (!is_sure) {
            out->doubtful++;
            out->doubtful_bytes += candidate->bytes;
        } else if (ct_format(path, sizeof path, "%s/%s", folder, candidate->name) > 0 &&
                   unlink(path) == 0) {
            ct_info("removed a stale segment path=%s", path);
            out->removed++;
            out->removed_bytes += candidate->bytes;
        }
    }
    free(all.list);
}
