/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/logdir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    SUFFIX_CHARS = 8,
    TRIES = 100,
    REPEATS_MAX = 1000000,
    CLEAN_FDS = 16
};

static void random_suffix(char *dst)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    uint8_t bytes[SUFFIX_CHARS];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memset(bytes, (int)getpid(),
               sizeof bytes); /* random; mkdir() tells if it is free */
    for (int i = 0; i < SUFFIX_CHARS; i++)
        dst[i] = letters[bytes[i] % (sizeof letters - 1)];
    dst[SUFFIX_CHARS] = '\0';
}

static int cannot_make(const char *path, struct ctrun_error *err)
{
    const int code = errno;

    return ct_fail(err, -code,
                   "log directory %.600s: %s; choose another --log-dir, or /dev/null "
                   "for none",
                   path, strerror(code));
}

/* Makes parent/name_xxxxxxxx with an unused suffix. mkdir() reserves the name: nodes on one
 * machine, or on a shared file system, may choose a name at the same time. */
static int make_unique(char *dst, const char *parent, const char *name,
                       struct ctrun_error *err)
{
    char suffix[SUFFIX_CHARS + 1];

    for (int i = 0; i < TRIES; i++) {
        random_suffix(suffix);
        if (ct_format(dst, PATH_MAX, "%s/%s_%s", parent, name, suffix) < 0)
            return ct_fail(err, -ENAMETOOLONG, "log directory in %.200s: path too long",
                           parent);
        if (mkdir(dst, 0700) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    return cannot_make(dst, err);
}

static int make_path(const char *path, struct ctrun_error *err)
{
    char partial[PATH_MAX];

    for (const char *slash = path; (slash = strchr(slash + 1, '/'));) {
        (void)ct_format(partial, sizeof partial, "%.*s", (int)(slash - path), path);
        (void)mkdir(partial, 0700); /* the last mkdir() reports the error */
    }
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return cannot_make(path, err);
    return 0;
}

static int make_absolute(char *dst, const char *path, struct ctrun_error *err)
{
    char directory[PATH_MAX];
    int rc;

    if (path[0] == '/')
        rc = ct_copy(dst, PATH_MAX, path);
    else if (!getcwd(directory, sizeof directory))
        rc = -errno;
    else
        rc = ct_format(dst, PATH_MAX, "%s/%s", directory, path);
    return rc < 0 ? ct_fail(err, rc, "log directory %.200s: %s", path, strerror(-rc))
                  : 0;
}

int logdir_open(struct logdir *dir, const char *base, const char *tmpdir,
                const char *run_id, struct ctrun_error *err)
{
    char parent[PATH_MAX];
    char name[256];
    int rc;

    *dir = (struct logdir){
        .is_temporary = !base,
        .lacks_tmpdir = !base && tmpdir && access(tmpdir, F_OK) < 0,
    };
    if (dir->lacks_tmpdir)
        tmpdir = NULL;
    rc = make_absolute(parent, base ? base : tmpdir ? tmpdir : "/tmp", err);
    if (rc == 0 && base) {
        (void)ct_copy(dir->base, sizeof dir->base, parent);
        rc = make_path(dir->base, err);
    } else if (rc == 0) {
        rc = make_unique(dir->base, parent, "torchelastic", err);
    }
    if (rc < 0)
        return rc;
    (void)ct_format(name, sizeof name, "%.200s", run_id);
    for (char *p = name; *p; p++)
        if (*p == '/')
            *p = '_';
    rc = make_unique(dir->run, dir->base, name, err);
    dir->is_open = rc == 0;
    return rc;
}

bool logdir_is_gone(const struct logdir *dir)
{
    return access(dir->run, F_OK) < 0 && errno == ENOENT;
}

/* A new round without a failure before it has the same restart count as the last round, so its
 * name gets a suffix: nothing is overwritten. */
static int enter_round(struct logdir *dir, uint64_t generation, uint32_t restart_count,
                       struct ctrun_error *err)
{
    for (int repeat = 1; repeat < REPEATS_MAX; repeat++) {
        char again[16] = "";

        if (repeat > 1)
            (void)ct_format(again, sizeof again, ".%d", repeat);
        if (ct_format(dir->attempt, sizeof dir->attempt, "%s/attempt_%u%s", dir->run,
                      restart_count, again) < 0)
            return ct_fail(err, -ENAMETOOLONG, "log directory %.600s: too long",
                           dir->run);
        if (mkdir(dir->attempt, 0700) == 0) {
            dir->generation = generation;
            dir->made_count = 0;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return ct_fail(err, -errno, "log directory %.600s: %s", dir->attempt,
                   strerror(errno));
}

int logdir_enter(struct logdir *dir, uint64_t generation, uint32_t restart_count,
                 int local_rank, struct ctrun_error *err)
{
    char path[PATH_MAX];
    int rc;

    if ((!dir->attempt[0] || dir->generation != generation) &&
        (rc = enter_round(dir, generation, restart_count, err)) < 0)
        return rc;
    if (local_rank - dir->made_first >= 0 &&
        local_rank - dir->made_first < dir->made_count)
        return 0;
    if (ct_format(path, sizeof path, "%s/%d", dir->attempt, local_rank) < 0)
        return ct_fail(err, -ENAMETOOLONG, "log directory %.600s: too long",
                       dir->attempt);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return ct_fail(err, -errno, "log directory %.600s: %s", path, strerror(errno));
    if (dir->made_count == 0)
        dir->made_first = local_rank;
    if (local_rank == dir->made_first + dir->made_count)
        dir->made_count++;
    return 0;
}

char *logdir_path(const struct logdir *dir, int local_rank, const char *name)
{
    char path[PATH_MAX];
    int rc;

    if (local_rank < 0)
        rc = ct_format(path, sizeof path, "%s/%s", dir->attempt, name);
    else
        rc = ct_format(path, sizeof path, "%s/%d/%s", dir->attempt, local_rank, name);
    return rc < 0 ? NULL : ct_strdup(path);
}

/* Writes under another name and then renames: a reader sees the old file, none, or the whole new
 * one. Without fsync(): a power failure may lose the file, as it may lose the logs. */
int logdir_write(const struct logdir *dir, const char *name, const void *data,
                 size_t length, struct ctrun_error *err)
{
    char path[PATH_MAX], beside[PATH_MAX];
    struct stat info;
    int fd, rc;

    if (ct_format(path, sizeof path, "%s/%s", dir->run, name) < 0 ||
        ct_format(beside, sizeof beside, "%s.new", path) < 0)
        return ct_fail(err, -ENAMETOOLONG, "%.600s: the name is too long", path);
    if (lstat(beside, &info) == 0 && S_ISLNK(info.st_mode))
        (void)unlink(beside); /* who may write in this folder may have left it */
    if ((fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                   0600)) < 0)
        return ct_fail(err, -errno, "%.600s: %s", beside, strerror(errno));
    errno = EIO; /* for a short write */
    rc = write(fd, data, length) == (ssize_t)length ? 0 : -errno;
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && rename(beside, path) < 0)
        rc = -errno;
    if (rc < 0)
        (void)unlink(beside);
    return rc < 0 ? ct_fail(err, rc, "%.600s: %s", path, strerror(-rc)) : 0;
}

static int remove_if_empty(const char *path, const struct stat *info, int kind,
                           struct FTW *at)
{
    (void)info;
    (void)at;
    if (kind == FTW_DP)
        (void)rmdir(path); /* fails if not empty: output stays */
    return 0;
}

/* Ends the walk at the first entry that is no directory. */
static int find_file(const char *path, const struct stat *info, int kind,
                     struct FTW *at)
{
    (void)path;
    (void)info;
    (void)at;
    return kind != FTW_D && kind != FTW_DNR;
}

/* Removes the folders of this attempt that logdir_enter() made, without searching for others. If
 * folders of earlier attempts exist, their parents stay. False: not all folders were removed. */
static bool remove_made(const struct logdir *dir)
{
    char path[PATH_MAX];

    for (int i = 0; i < dir->made_count; i++)
        if (ct_format(path, sizeof path, "%s/%d", dir->attempt, dir->made_first + i) >=
            0)
            (void)rmdir(path);
    return rmdir(dir->attempt) == 0 && rmdir(dir->run) == 0 && rmdir(dir->base) == 0;
}

bool logdir_tidy(struct logdir *dir)
{
    if (!dir->is_open)
        return false;
    if (dir->is_temporary && remove_made(dir))
        dir->is_open = false;
    return dir->is_open && nftw(dir->attempt, find_file, CLEAN_FDS, FTW_PHYS) == 1;
}

void logdir_close(struct logdir *dir)
{
    if (dir->is_open && dir->is_temporary)
        (void)nftw(dir->base, remove_if_empty, CLEAN_FDS, FTW_DEPTH | FTW_PHYS);
    dir->is_open = false;
}
