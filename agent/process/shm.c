/* SPDX-License-Identifier: Apache-2.0 */
/* Processes are looked at only when there is a candidate file; mostly there is none. A memory map cannot be read while
 * a thread of that process waits for a file system that hangs: so a thread of ours looks, with a time limit. */
#include "agent/process/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/kernel.h"

#define SHM_FOLDER "/dev/shm"

enum {
    FILES_MAX = 256 /* more files are left alone */
};

struct files {
    struct shm_file *list; /* NULL: there is none */
    int count;
};

static bool is_known_name(const char *name, bool all)
{
    return ct_starts_with(name, "nccl-") || ct_starts_with(name, "gloo-") ||
           (all && ct_starts_with(name, "torch_"));
}

static void add(struct files *files, const char *name, const struct stat *info)
{
    struct shm_file *file;

    if (files->count == FILES_MAX ||
        (!files->list &&
         !(files->list = ct_zalloc_array(FILES_MAX, sizeof *files->list))))
        return;
    file = &files->list[files->count++];
    (void)ct_copy(file->name, sizeof file->name, name);
    file->device = info->st_dev;
    file->inode = info->st_ino;
    file->bytes = (uint64_t)info->st_blocks * 512;
    file->is_held = false;
}

/* Finds regular files of this user with such names. */
static void find_files(struct files *files, bool all,
                       bool (*is_wanted)(void *context, int dir, const char *name,
                                         const struct stat *info),
                       void *context)
{
    DIR *dir = opendir(SHM_FOLDER);
    struct stat info;

    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (is_known_name(entry->d_name, all) &&
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode) && info.st_uid == getuid() &&
            is_wanted(context, dirfd(dir), entry->d_name, &info))
            add(files, entry->d_name, &info);
    }
    if (dir)
        closedir(dir);
}

/* ---- Who holds them ---------------------------------------------------------------------- */

static void mark(struct files *files, dev_t device, ino_t inode)
{
    for (int i = 0; i < files->count; i++)
        if (files->list[i].inode == inode && files->list[i].device == device)
            files->list[i].is_held = true;
}

/* Other links are not followed: fstatat() would wait for a file system that hangs. */
static bool has_known_name(int dir, const char *descriptor)
{
    char target[PATH_MAX];
    const ssize_t length = readlinkat(dir, descriptor, target, sizeof target - 1);

    target[length > 0 ? length : 0] = '\0';
    return is_known_name(ct_base_name(target), true);
}

static void mark_open(struct files *files, const char *pid)
{
    char path[PATH_MAX];
    struct stat info;
    DIR *dir;

    (void)ct_format(path, sizeof path, "/proc/%s/fd", pid);
    dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (has_known_name(dirfd(dir), entry->d_name) &&
            fstatat(dirfd(dir), entry->d_name, &info, 0) == 0)
            mark(files, info.st_dev, info.st_ino);
    if (dir)
        closedir(dir);
}

/* A file in another mount namespace has another path there, but the same inode. */
static void mark_mapped(struct files *files, const char *pid)
{
    char path[64];
    char line[PATH_MAX + 128];
    unsigned long inode;
    unsigned major, minor;
    FILE *file;

    (void)ct_format(path, sizeof path, "/proc/%.20s/maps", pid);
    if (!(file = fopen(path, "re")))
        return;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %*s %*s %x:%x %lu", &major, &minor, &inode) == 3 &&
            inode != 0)
            mark(files, makedev(major, minor), inode);
    (void)fclose(file); /* the file was only read */
}

static void mark_of(struct files *files, const char *pid)
{
    mark_mapped(files, pid);
    mark_open(files, pid);
}

static void mark_of_everybody(struct files *files)
{
    DIR *dir = opendir("/proc");

    for (int i = 0; !dir && i < files->count; i++)
        files->list[i].is_held = true; /* /proc cannot be read */
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            mark_of(files, entry->d_name);
    if (dir)
        closedir(dir);
}

static void visit(void *context, const struct reap_process *process)
{
    char pid[16];

    (void)ct_format(pid, sizeof pid, "%d", (int)process->pid);
    mark_of(context, pid);
}

static void mark_of_ours(struct files *files)
{
    (void)reap_scan(NULL, visit, files);
}

struct job {
    struct files files;
    void (*fn)(struct files *files);
};

static void run_job(void *context)
{
    struct job *job = context;

    job->fn(&job->files);
}

static void free_job(void *context)
{
    struct job *job = context;

    free(job->files.list);
    free(job);
}

static struct job *create_job(const struct files *files,
                              void (*fn)(struct files *files))
{
    struct job *job = ct_zalloc(sizeof *job);

    if (!job || !(job->files.list = ct_zalloc_array(FILES_MAX, sizeof *files->list))) {
        free(job);
        return NULL;
    }
    memcpy(job->files.list, files->list, (size_t)files->count * sizeof *files->list);
    job->files.count = files->count;
    job->fn = fn;
    return job;
}

/* Gives fn a copy of `files`, because it may still use that when this returns. False: fn has not marked all that are
 * held. */
static bool mark_within_limit(struct files *files, void (*fn)(struct files *files),
                              uint64_t limit_ms)
{
    /* others do not wait for our looks */
    static struct blocking_lane lane = {.needs_thread = true};
    struct job *job = create_job(files, fn);

    if (!job || blocking_call_in(&lane, run_job, free_job, job, limit_ms) < 0)
        return false;
    memcpy(files->list, job->files.list, (size_t)files->count * sizeof *files->list);
    free_job(job);
    return true;
}

/* ---- Files of this run ------------------------------------------------------------------- */

void shm_watch_init(struct shm_watch *watch)
{
    *watch = (struct shm_watch){.count = 0};
    (void)clock_gettime(CLOCK_REALTIME, &watch->since); /* cannot fail */
}

void shm_watch_deinit(struct shm_watch *watch)
{
    free(watch->list);
    watch->list = NULL;
    watch->count = 0;
}

static bool is_known(const struct shm_watch *watch, const struct stat *info)
{
    for (int i = 0; i < watch->count; i++)
        if (watch->list[i].inode == info->st_ino &&
            watch->list[i].device == info->st_dev)
            return true;
    return false;
}

/* A file's time comes from this clock or, on Linux before 6.13, from its last tick, so a file
 * that is older than the run never has a later time. A file of ours that is made within that
 * tick may be left. */
static bool is_before(const struct shm_watch *watch, int64_t seconds, int64_t nanos)
{
    return seconds < watch->since.tv_sec ||
           (seconds == watch->since.tv_sec && nanos <= watch->since.tv_nsec);
}

/* Where the file system does not tell when a file was made, its last change decides. */
static bool is_new(void *context, int dir, const char *name, const struct stat *info)
{
    const struct shm_watch *watch = context;
    struct ct_statx made;

    if (is_before(watch, info->st_mtim.tv_sec, info->st_mtim.tv_nsec) ||
        is_before(watch, info->st_ctim.tv_sec, info->st_ctim.tv_nsec) ||
        is_known(watch, info))
        return false;
    return ct_statx(dir, name, AT_SYMLINK_NOFOLLOW, CT_STATX_BTIME, &made) < 0 ||
           !(made.mask & CT_STATX_BTIME) ||
           !is_before(watch, made.btime_seconds, made.btime_nanos);
}

static void keep(struct shm_watch *watch, const struct shm_file *file)
{
    if (watch->count < FILES_MAX &&
        (watch->list ||
         (watch->list = ct_zalloc_array(FILES_MAX, sizeof *watch->list))))
        watch->list[watch->count++] = *file;
}

void shm_watch_look(struct shm_watch *watch, bool all)
{
    struct files files = {0};

    find_files(&files, all, is_new, watch);
    if (files.count > 0)
        (void)mark_within_limit(&files, mark_of_ours,
                                SHM_LOOK_MS); /* else none is noted */
    for (int i = 0; i < files.count; i++)
        if (files.list[i].is_held)
            keep(watch, &files.list[i]);
    free(files.list);
}

/* The name may belong to another file by now. */
static bool unlink_same(const struct shm_file *file)
{
    char path[PATH_MAX];
    struct stat info;

    return ct_format(path, sizeof path, SHM_FOLDER "/%s", file->name) > 0 &&
           lstat(path, &info) == 0 && info.st_ino == file->inode &&
           info.st_dev == file->device && unlink(path) == 0;
}

/* The loop waits, and no heartbeat is sent: with a short lease the node would be lost. */
static uint64_t remove_limit_ms(uint64_t silent_until_ms)
{
    const uint64_t now_ms = ct_now_ms();
    const uint64_t left_ms = silent_until_ms > now_ms ? silent_until_ms - now_ms : 0;

    return left_ms / 3 * 2 < SHM_REMOVE_MS ? left_ms / 3 * 2 : SHM_REMOVE_MS;
}

int shm_watch_remove(struct shm_watch *watch, uint64_t silent_until_ms)
{
    struct files files = {watch->list, watch->count};
    const uint64_t limit_ms = remove_limit_ms(silent_until_ms);
    uint64_t bytes = 0;
    int removed = 0;
    int kept = 0;

    for (int i = 0; i < files.count; i++)
        files.list[i].is_held = false;
    if (files.count > 0 && !mark_within_limit(&files, mark_of_everybody, limit_ms))
        return 0;
    for (int i = 0; i < files.count; i++) {
        const struct shm_file file = files.list[i];

        if (file.is_held) {
            files.list[kept++] = file;
        } else if (unlink_same(&file)) {
            bytes += file.bytes;
            removed++;
        }
    }
    watch->count = kept;
    if (removed > 0)
        ct_info("removed what the workers left folder=" SHM_FOLDER
                " files=%d bytes=%llu",
                removed, (unsigned long long)bytes);
    return removed;
}

/* ---- For people -------------------------------------------------------------------------- */

static bool is_old(void *context, int dir, const char *name, const struct stat *info)
{
    (void)dir;
    (void)name;
    return info->st_mtime <= *(const time_t *)context;
}

int shm_count_unused(uint64_t min_age_s, uint64_t *bytes)
{
    time_t latest = time(NULL) - (time_t)min_age_s;
    struct files files = {0};
    int count = 0;

    *bytes = 0;
    find_files(&files, true, is_old, &latest);
    if (files.count > 0)
        mark_of_everybody(&files);
    for (int i = 0; i < files.count; i++) {
        count += !files.list[i].is_held;
        *bytes += files.list[i].is_held ? 0 : files.list[i].bytes;
    }
    free(files.list);
    return count;
}
