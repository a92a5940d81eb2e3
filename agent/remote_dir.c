/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/remote_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

#define SOCKET_SUFFIX ".sock"

enum {
    RUN_ID_SHOWN = 40,
    BACKLOG = 16
};

int remote_dir_list(char paths[REMOTE_DIRS_MAX][PATH_MAX], uid_t uid)
{
    const bool is_me = uid == getuid();
    const char *own = is_me ? getenv(REMOTE_DIR_ENV) : NULL;
    const char *runtime = is_me ? getenv("XDG_RUNTIME_DIR") : NULL;
    int count = 0;

    if (own && *own) {
        (void)ct_copy(paths[0], PATH_MAX, own);
        return 1;
    }
    if (runtime && *runtime == '/')
        (void)ct_format(paths[count++], PATH_MAX, "%s/ctrun", runtime);
    else if (!is_me)
        (void)ct_format(paths[count++], PATH_MAX, "/run/user/%u/ctrun", (unsigned)uid);
    (void)ct_format(paths[count++], PATH_MAX, "/tmp/ctrun-%u", (unsigned)uid);
    return count;
}

int remote_dir_open(const char *path, bool make, struct ctrun_error *err)
{
    struct stat info;
    int fd;

    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return ct_fail(err, -errno, "%s: %s", path, strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return ct_fail(err, -errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) == 0 &&
        (info.st_uid == getuid() || (getuid() == 0 && !make)) &&
        (info.st_mode & 077) == 0)
        return fd;
    close(fd);
    return ct_fail(err, -EPERM,
                   "%s: belongs to user %u with mode %03o: it must be yours, and 700",
                   path, (unsigned)info.st_uid, (unsigned)(info.st_mode & 0777));
}

void remote_dir_name(char name[REMOTE_NAME_MAX], const char *run_id, pid_t pid)
{
    char shown[RUN_ID_SHOWN + 1];
    size_t length = 0;

    for (; run_id[length] && length < RUN_ID_SHOWN; length++)
        shown[length] = (char)(isalnum((unsigned char)run_id[length]) ||
                                       (length > 0 && strchr("._-", run_id[length]))
                                   ? run_id[length]
                                   : '_');
    shown[length] = '\0';
    (void)ct_format(name, REMOTE_NAME_MAX, "%s-%d" SOCKET_SUFFIX, shown, (int)pid);
}

static void fill_address(struct sockaddr_un *address, int dir, const char *name)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)ct_format(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s",
                    dir, name);
}

/* Under a hidden name until it listens: a *.sock that refuses has been left behind for sure. */
int remote_dir_listen(int dir, const char *name)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    char hidden[REMOTE_NAME_MAX + 1];
    int rc = 0;

    if (fd < 0)
        return -errno;
    (void)ct_format(hidden, sizeof hidden, ".%s", name);
    fill_address(&address, dir, hidden);
    (void)unlinkat(dir, hidden, 0);
    if (fchmod(fd, 0600) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        rc = -errno;
    else if (listen(fd, BACKLOG) < 0 || renameat(dir, hidden, dir, name) < 0) {
        rc = -errno;
        (void)unlinkat(dir, hidden, 0);
    }
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

int remote_dir_connect(int dir, const char *name)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    int rc;

    if (fd < 0)
        return -errno;
    fill_address(&address, dir, name);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    rc = -errno;
    close(fd);
    if (rc == -ECONNREFUSED)
        (void)unlinkat(dir, name, 0);
    return rc;
}

void remote_dir_walk(int dir, void (*visit)(void *context, int dir, const char *name),
                     void *context)
{
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int seen = 0;

    if (!list) {
        if (copy >= 0)
            close(copy);
        return;
    }
    for (struct dirent *it; (it = readdir(list)) && seen < REMOTE_ENTRIES_MAX; seen++) {
        const size_t length = strlen(it->d_name);

        if (it->d_name[0] != '.' && length < REMOTE_NAME_MAX &&
            length > strlen(SOCKET_SUFFIX) &&
            strcmp(it->d_name + length - strlen(SOCKET_SUFFIX), SOCKET_SUFFIX) == 0)
            visit(context, dir, it->d_name);
    }
    closedir(list);
}
