/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/control/ctl_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent/control/ctl_mark_file.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

#define PID_NAMESPACE_OF_HOST 0xeffffffc /* PROC_PID_INIT_INO of Linux */

enum {
    RUN_ID_SHOWN = 40,
    END_MAX = 40,       /* end of a name: .NAMESPACE.worker */
    UNIQUE_LETTERS = 6, /* pattern for mkdtemp() */
    MERGE_KEPT_S = 3600
};

/* A folder is trusted only if it belongs to its user and is closed to others. */
static bool is_private(const struct stat *info, uid_t uid)
{
    return S_ISDIR(info->st_mode) && info->st_uid == uid && (info->st_mode & 077) == 0;
}

/* Lists folders /tmp/ctrun-UID-XXXXXX that belong to that user. */
static int list_unique(char paths[][PATH_MAX], int count, uid_t uid)
{
    char prefix[32];
    DIR *list = opendir("/tmp");
    struct stat info;

    (void)ct_format(prefix, sizeof prefix, "ctrun-%u-", (unsigned)uid);
    for (struct dirent *it; list && count < CTL_DIRS_MAX && (it = readdir(list));) {
        if (ct_starts_with(it->d_name, prefix) &&
            strlen(it->d_name) == strlen(prefix) + UNIQUE_LETTERS &&
            fstatat(dirfd(list), it->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            is_private(&info, uid))
            (void)ct_format(paths[count++], PATH_MAX, "/tmp/%s", it->d_name);
    }
    if (list)
        closedir(list);
    return count;
}

/* Lists the folders with fixed names. Without a session of its own, a process finds runs of a login
 * session of that user (is_search), but makes no folder there. */
static int list_fixed(char paths[][PATH_MAX], uid_t uid, bool is_search)
{
    const char *runtime = uid == getuid() ? getenv("XDG_RUNTIME_DIR") : NULL;
    int count = 0;

    if (runtime && *runtime == '/')
        (void)ct_format(paths[count++], PATH_MAX, "%s/ctrun", runtime);
    else if (is_search)
        (void)ct_format(paths[count++], PATH_MAX, "/run/user/%u/ctrun", (unsigned)uid);
    (void)ct_format(paths[count++], PATH_MAX, "/tmp/ctrun-%u", (unsigned)uid);
    return count;
}

int ctl_dir_list(char paths[CTL_DIRS_MAX][PATH_MAX], uid_t uid)
{
    const char *own = uid == getuid() ? getenv(CTL_DIR_ENV) : NULL;

    if (!own || !*own)
        return list_unique(paths, list_fixed(paths, uid, true), uid);
    (void)ct_copy(paths[0], PATH_MAX, own);
    return 1;
}

static bool is_in_tmp(const char *path)
{
    return ct_starts_with(path, "/tmp/");
}

/* Opens the first folder that is ours, and puts its path into `path`; a descriptor or a code. */
static int open_first(char path[PATH_MAX], char paths[][PATH_MAX], int count,
                      bool in_tmp, struct ctrun_error *err)
{
    int fd = -ENOENT;

    for (int i = 0; i < count && fd < 0; i++) {
        if (in_tmp && !is_in_tmp(paths[i]))
            continue;
        fd = ctl_dir_open(paths[i], true, err);
        (void)ct_copy(path, PATH_MAX, paths[i]);
    }
    return fd;
}

/* /tmp/ctrun-UID may have been made by another user, so that we use that folder or have none.
 * Then a folder with six random letters is made, which readers find by its prefix and owner
 * (list_unique). /tmp, which may be large, is read only in this case. */
int ctl_dir_choose(char path[PATH_MAX], size_t max, bool in_tmp,
                   struct ctrun_error *err)
{
    char paths[CTL_DIRS_MAX][PATH_MAX];
    const char *own = getenv(CTL_DIR_ENV);
    int fd;

    if (own && *own && !(in_tmp && strlen(own) > max)) {
        (void)ct_copy(path, PATH_MAX, own);
        return ctl_dir_open(path, true, err);
    }
    fd = open_first(path, paths, list_fixed(paths, getuid(), false), in_tmp, err);
    if (fd < 0)
        fd = open_first(path, paths, list_unique(paths, 0, getuid()), in_tmp, err);
    if (fd >= 0)
        return fd;
    (void)ct_format(path, PATH_MAX, "/tmp/ctrun-%u-XXXXXX", (unsigned)getuid());
    return mkdtemp(path) ? ctl_dir_open(path, false, err) : fd;
}

/* The folder is opened first and checked afterwards, through the descriptor: so it cannot be
 * replaced in between. O_NOFOLLOW: a link at this place may be an attack. */
int ctl_dir_open(const char *path, bool make, struct ctrun_error *err)
{
    struct stat info;
    int fd;

    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return ct_fail(err, -errno, "the folder %s cannot be made: %s", path,
                       strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return ct_fail(err, -errno, "the folder %s cannot be opened: %s", path,
                       errno == ENOTDIR ? "it is a file, or a symbolic link"
                                        : strerror(errno));
    if (fstat(fd, &info) < 0) {
        const int rc = -errno;

        close(fd);
        return ct_fail(err, rc, "%s: %s", path, strerror(-rc));
    }
    if ((is_private(&info, getuid()) ||
         (getuid() == 0 && !make && is_private(&info, info.st_uid))))
        return fd;
    close(fd);
    return ct_fail(
        err, -EPERM,
        "the folder %s belongs to user %u and has mode %03o: it must belong to "
        "you and have mode 700",
        path, (unsigned)info.st_uid, (unsigned)(info.st_mode & 0777));
}

void ctl_dir_name(char name[CTL_DIR_NAME_MAX], const char *run_id, pid_t number,
                  const char *suffix)
{
    char shown[RUN_ID_SHOWN + 1];
    size_t length = 0;

    for (; run_id[length] && length < RUN_ID_SHOWN; length++)
        shown[length] = (char)(isalnum((unsigned char)run_id[length]) ||
                                       (length > 0 && strchr("._-", run_id[length]))
                                   ? run_id[length]
                                   : '_');
    shown[length] = '\0';
    (void)ct_format(name, CTL_DIR_NAME_MAX, "%s-%d%s", shown, (int)number, suffix);
}

/* ".NAMESPACE" and suffix; on the host the suffix alone. */
static void fill_end(char end[END_MAX], const char *suffix)
{
    const uint64_t namespace = ct_small_file_pid_namespace();

    if (namespace && namespace != PID_NAMESPACE_OF_HOST)
        (void)ct_format(end, END_MAX, ".%" PRIu64 "%s", namespace, suffix);
    else
        (void)ct_format(end, END_MAX, "%s", suffix);
}

void ctl_dir_own_name(char name[CTL_DIR_NAME_MAX], const char *run_id,
                      const char *suffix)
{
    char end[END_MAX];

    fill_end(end, suffix);
    ctl_dir_name(name, run_id, getpid(), end);
}

bool ctl_dir_is_here(const char *name, const char *suffix)
{
    const char *pid = strrchr(name, '-');
    char end[END_MAX];

    fill_end(end, suffix);
    return pid && strcmp(pid + 1 + strspn(pid + 1, "0123456789"), end) == 0;
}

bool ctl_dir_is_of_run(const char *name, const char *run_id, const char *suffix)
{
    char start[CTL_DIR_NAME_MAX];
    size_t length;

    ctl_dir_name(start, run_id, 0, "");
    length = (size_t)(strrchr(start, '-') - start) + 1;
    start[length] = '\0';
    return ct_starts_with(name, start) &&
           strspn(name + length, "0123456789.") + strlen(suffix) >=
               strlen(name + length);
}

/* Through the folder's descriptor: sun_path has room for 107 characters only, and a folder's
 * path may be longer. */
static void fill_address(struct sockaddr_un *address, int dir, const char *name)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)ct_format(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s",
                    dir, name);
}

/* The socket has a hidden name, .NAME, until it listens: so a *.sock that refuses connections
 * was left by a killed agent. */
int ctl_dir_listen(int dir, const char *name, int type)
{
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    char hidden[CTL_DIR_NAME_MAX + 1];
    int rc = 0;

    if (fd < 0)
        return -errno;
    (void)ct_format(hidden, sizeof hidden, ".%s", name);
    fill_address(&address, dir, hidden);
    (void)unlinkat(dir, hidden, 0);
    if (fchmod(fd, 0600) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        rc = -errno;
    else if (listen(fd, SOMAXCONN) < 0 || renameat(dir, hidden, dir, name) < 0) {
        rc = -errno;
        (void)unlinkat(dir, hidden, 0);
    }
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

static bool is_of_agent(const char *name)
{
    const size_t length = strlen(name), end = strlen(CTL_SOCKET_SUFFIX);

    return length > end && strcmp(name + length - end, CTL_SOCKET_SUFFIX) == 0;
}

/* A killed agent's socket tells the next launcher of its run that workers of it may live: so who
 * removes the socket leaves a mark. The folder of another user, which root may look at, is left as
 * it is. */
static void remove_killed(int dir, const char *name, uint64_t now_ms)
{
    char mark[CTL_DIR_NAME_MAX + sizeof CTL_MARK_SUFFIX];
    struct stat info;

    if (fstat(dir, &info) < 0 || info.st_uid != getuid())
        return;
    if (is_of_agent(name)) {
        (void)ct_format(mark, sizeof mark, "%.*s" CTL_MARK_SUFFIX,
                        (int)(strlen(name) - strlen(CTL_SOCKET_SUFFIX)), name);
        ctl_mark_file_write(dir, mark, now_ms);
    }
    (void)unlinkat(dir, name, 0);
}

/* ECONNREFUSED: a name exists only while its owner listens, so the owner was killed. A name without a
 * pid in it may be another one's by now: it stays. */
int ctl_dir_connect(int dir, const char *name, int type)
{
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    int rc;

    if (fd < 0)
        return -errno;
    fill_address(&address, dir, name);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    rc = -errno;
    close(fd);
    if (rc == -ECONNREFUSED && is_of_agent(name))
        remove_killed(dir, name, ct_now_ms());
    return rc;
}

/* Uses a descriptor of its own: readdir() moves the read position, which duplicated descriptors
 * share. */
static void walk(int dir, const char *suffix, bool with_hidden,
                 void (*visit)(void *context, int dir, const char *name), void *context)
{
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int seen = 0;

    if (!list) {
        if (copy >= 0)
            close(copy);
        return;
    }
    for (struct dirent *it; (it = readdir(list)) && seen < CTL_DIR_ENTRIES_MAX;
         seen++) {
        const size_t length = strlen(it->d_name);

        if ((it->d_name[0] != '.' || with_hidden) && length < CTL_DIR_NAME_MAX &&
            length > strlen(suffix) &&
            strcmp(it->d_name + length - strlen(suffix), suffix) == 0)
            visit(context, dir, it->d_name);
    }
    closedir(list);
}

void ctl_dir_walk(int dir, const char *suffix,
                  void (*visit)(void *context, int dir, const char *name),
                  void *context)
{
    walk(dir, suffix, false, visit, context);
}

/* A datagram socket cannot connect to a stream socket, but the error tells whether that one
 * listens. */
static void remove_stale(int dir, const char *name, uint64_t now_ms)
{
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;

    if (fd < 0)
        return;
    fill_address(&address, dir, name);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 &&
        errno == ECONNREFUSED)
        remove_killed(dir, name, now_ms);
    close(fd);
}

/* Removes the hidden socket of an agent that was killed before it listened. Only for pids of
 * this machine and namespace. */
static void remove_unfinished(int dir, const char *name, const char *suffix)
{
    if (ctl_dir_is_here(name, suffix) &&
        kill((pid_t)strtol(strrchr(name, '-') + 1, NULL, 10), 0) < 0 && errno == ESRCH)
        (void)unlinkat(dir, name, 0);
}

struct sweep {
    const char *suffix;
    uint64_t now_ms;
};

static void remove_left_behind(void *context, int dir, const char *name)
{
    const struct sweep *sweep = context;

    if (name[0] == '.')
        remove_unfinished(dir, name, sweep->suffix);
    else
        remove_stale(dir, name, sweep->now_ms);
}

static void remove_old_mark(void *context, int dir, const char *name)
{
    const struct sweep *sweep = context;

    (void)ctl_mark_file_read(dir, name, sweep->now_ms);
}

/* Its name has no pid. The tasks meet within a minute, so an old one is of tasks that were killed. */
static void remove_old_merge(void *context, int dir, const char *name)
{
    struct stat info;

    (void)context;
    if (fstatat(dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode) &&
        info.st_mtime < time(NULL) - MERGE_KEPT_S)
        (void)unlinkat(dir, name, 0);
}

void ctl_dir_sweep(int dir, const char *suffix, uint64_t now_ms)
{
    struct sweep sweep = {.suffix = suffix, .now_ms = now_ms};

    if (strcmp(suffix, CTL_SOCKET_SUFFIX) == 0)
        walk(dir, CTL_MERGE_SUFFIX, true, remove_old_merge, NULL);
    walk(dir, suffix, true, remove_left_behind, &sweep);
    walk(dir, CTL_MARK_SUFFIX, false, remove_old_mark, &sweep);
}
