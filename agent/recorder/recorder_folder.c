/* SPDX-License-Identifier: Apache-2.0 */
/* A lock on the folder shows that its agent runs: the kernel releases the lock when the agent ends,
 * for any reason; pids of other containers that share /tmp do not matter. */
#include "agent/recorder/recorder_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/control/ctl_dir.h"
#include "agent/recorder/recorder_source.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

#define SUFFIX     ".recorder"
#define NEW_SUFFIX SUFFIX "-new"

enum {
    NEW_MAX_S = 60, /* an agent makes its folder in less */
    ABOVE_MAX_BYTES =
        70, /* PID.NAMESPACE.recorder/PID fits into a socket's address, too */
    NAME_MAX_BYTES = 32
};

struct recorder_folder {
    char path[PATH_MAX];
    char name[NAME_MAX_BYTES];
    int above; /* the parent folder */
    int fd;    /* locked */
};

/* ---- Removing ---------------------------------------------------------------------------- */

/* Removes the files in `fd`, which stays open; goes_deeper: those in its folders, too. */
static void empty(int fd, bool goes_deeper)
{
    const int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);

    if (!list && copy >= 0)
        close(copy);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        int below;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            unlinkat(fd, entry->d_name, 0) == 0 || !goes_deeper)
            continue;
        below = openat(fd, entry->d_name,
                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
            continue;
        empty(below, false); /* __pycache__ */
        close(below);
        (void)unlinkat(fd, entry->d_name, AT_REMOVEDIR);
    }
    if (list)
        closedir(list);
}

/* Opens a folder of ours and locks it; -EWOULDBLOCK: its agent runs. */
static int open_locked(int above, const char *name)
{
    struct stat info;
    const int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd < 0 ? -errno : 0;

    if (rc == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
        rc = -errno;
    /* Another agent removed the folder before it was locked. */
    if (rc == 0 && (fstat(fd, &info) < 0 || info.st_nlink == 0))
        rc = -ENOENT;
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return rc;
}

static void sweep_one(int above, const char *name)
{
    const int fd = open_locked(above, name);

    if (fd < 0)
        return;
    empty(fd, true);
    (void)unlinkat(above, name, AT_REMOVEDIR);
    close(fd);
}

/* Another agent may be about to lock one that is new. */
static bool is_left(int above, const char *name, const char *suffix)
{
    struct stat info;

    return strcmp(suffix, SUFFIX) == 0 ||
           (strcmp(suffix, NEW_SUFFIX) == 0 &&
            fstatat(above, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            time(NULL) - info.st_mtime > NEW_MAX_S);
}

static void sweep(int above)
{
    const int copy = openat(above, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int left = CTL_DIR_ENTRIES_MAX;

    if (!list && copy >= 0)
        close(copy);
    for (struct dirent *entry; list && left-- > 0 && (entry = readdir(list));) {
        const char *suffix = strrchr(entry->d_name, '.');

        if (suffix && is_left(above, entry->d_name, suffix))
            sweep_one(above, entry->d_name);
    }
    if (list)
        closedir(list);
}

/* ---- Making ------------------------------------------------------------------------------ */

static int write_text(int folder, const char *name, const char *text)
{
    const size_t length = strlen(text);
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t written;

    if (fd < 0)
        return -errno;
    written = write(fd, text, length);
    if (close(fd) < 0 && written >= 0)
        return -errno;
    return written == (ssize_t)length ? 0 : written < 0 ? -errno : -ENOSPC;
}

/* It gets its name when it is locked: so no other agent that starts now sweeps it up. */
static int make(struct recorder_folder *folder, unsigned wants)
{
    char new[NAME_MAX_BYTES + sizeof "-new"];
    int rc;

    (void)ct_format(new, sizeof new, "%s-new", folder->name);
    if (mkdirat(folder->above, new, 0700) < 0 && errno != EEXIST)
        return -errno;
    if ((folder->fd = open_locked(folder->above, new)) < 0)
        return folder->fd;
    /* Of an earlier process with our pid. */
    empty(folder->fd, true);
    sweep_one(folder->above, folder->name);
    rc = write_text(folder->fd, "sitecustomize.py", recorder_source);
    if (rc == 0 && wants & RECORDER_SERVE)
        rc = write_text(folder->fd, "serve", "");
    if (rc == 0 && wants & RECORDER_LEARN)
        rc = write_text(folder->fd, "learn", "");
    if (rc == 0 && renameat(folder->above, new, folder->above, folder->name) < 0)
        rc = -errno;
    if (rc < 0) {
        empty(folder->fd, true);
        (void)unlinkat(folder->above, new, AT_REMOVEDIR);
    }
    return rc;
}

/* PID.recorder; in a container with pids of its own PID.NAMESPACE.recorder (ctl_dir.h). */
static void fill_name(char dst[NAME_MAX_BYTES])
{
    char name[CTL_DIR_NAME_MAX];

    ctl_dir_own_name(name, "", SUFFIX);
    (void)ct_copy(dst, NAME_MAX_BYTES, name + 1); /* without the '-' behind the run */
}

int recorder_folder_open(struct recorder_folder **out, unsigned wants,
                         struct ctrun_error *err)
{
    struct recorder_folder *folder = ct_zalloc(sizeof *folder);
    char above[PATH_MAX];
    int rc;

    if (!folder)
        return ct_fail(err, -ENOMEM, "flight recorder: out of memory");
    folder->fd = -1;
    folder->above = rc = ctl_dir_choose(above, ABOVE_MAX_BYTES, true, err);
    if (rc >= 0) {
        sweep(folder->above);
        fill_name(folder->name);
        rc = ct_format(folder->path, sizeof folder->path, "%s/%s", above, folder->name);
        if (rc >= 0 && (rc = make(folder, wants)) < 0)
            (void)ct_fail(err, rc, "%s: %s", folder->path, strerror(-rc));
    }
    if (rc < 0) {
        recorder_folder_close(folder);
        return rc;
    }
    *out = folder;
    return 0;
}

void recorder_folder_close(struct recorder_folder *folder)
{
    if (!folder)
        return;
    if (folder->fd >= 0) {
        empty(folder->fd, true);
        (void)unlinkat(folder->above, folder->name, AT_REMOVEDIR);
        close(folder->fd);
    }
    if (folder->above >= 0)
        close(folder->above);
    free(folder);
}

/* ---- Workers ----------------------------------------------------------------------------- */

/* recorder.py restores all variables before the program begins. */
int recorder_folder_set_env(const struct recorder_folder *folder, struct ct_env *env)
{
    const char *path = ct_env_find(env->list, "PYTHONPATH");
    const bool has_path = path && *path;
    int rc = path ? ct_env_set(env, CT_ENV_PYTHONPATH, path) : 0;

    if (rc == 0)
        rc = ct_env_set(env, CT_ENV_RECORDER, folder->path);
    return rc < 0
               ? rc
               : ct_env_setf(env, "PYTHONPATH", "%s%s%s", folder->path,
                             has_path ? ":" : "",
                             has_path ? ct_env_find(env->list, CT_ENV_PYTHONPATH) : "");
}

void recorder_folder_socket(const struct recorder_folder *folder, char dst[PATH_MAX],
                            pid_t pid)
{
    (void)ct_format(dst, PATH_MAX, "%s/%d", folder->path, (int)pid); /* fits */
}

void recorder_folder_sockets(const struct recorder_folder *folder, char dst[PATH_MAX])
{
    *dst = '\0';
    if (folder)
        (void)ct_format(dst, PATH_MAX, "%s/", folder->path); /* fits */
}
