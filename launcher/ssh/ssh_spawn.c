/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    CHANNEL_FD = 3,
    CHANNEL_WAIT_S = 2, /* limit for a message that is not read */
    ENDS = 8,
};

/* Both ends of all pipes: [2 * i] is the child's end, its descriptor i; [2 * i + 1] is ours. */
struct ends {
    int fds[ENDS];
};

static void close_all(struct ends *ends)
{
    for (int i = 0; i < ENDS; i++)
        if (ends->fds[i] >= 0)
            close(ends->fds[i]);
}

static int open_pipe(struct ends *ends, int place, bool is_read)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    ends->fds[2 * place] = pair[is_read ? 0 : 1];
    ends->fds[2 * place + 1] = pair[is_read ? 1 : 0];
    return 0;
}

static int open_channel(struct ends *ends)
{
    const struct timeval wait = {.tv_sec = CHANNEL_WAIT_S};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    (void)setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    ends->fds[2 * CHANNEL_FD] = pair[0];
    ends->fds[2 * CHANNEL_FD + 1] = pair[1];
    return 0;
}

static int open_ends(struct ends *ends, const struct ssh_spawn *spawn)
{
    int rc;

    for (int i = 0; i < ENDS; i++)
        ends->fds[i] = -1;
    if (spawn->has_input) {
        rc = open_pipe(ends, STDIN_FILENO, true);
    } else {
        ends->fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        rc = ends->fds[0] < 0 ? -errno : 0;
    }
    if (rc < 0 || (rc = open_pipe(ends, STDOUT_FILENO, false)) < 0 ||
        (rc = open_pipe(ends, STDERR_FILENO, false)) < 0)
        return rc;
    return spawn->has_channel ? open_channel(ends) : 0;
}

/* The child gets its own process group: Ctrl-C reaches only this process, which passes it on. */
static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t set;
    int rc;

    sigemptyset(&set);
    if ((rc = posix_spawnattr_setsigmask(attributes, &set)) != 0)
        return -rc;
    sigaddset(&set, SIGPIPE); /* we ignore them */
    sigaddset(&set, SIGXFSZ);
    if ((rc = posix_spawnattr_setsigdefault(attributes, &set)) != 0 ||
        (rc = posix_spawnattr_setpgroup(attributes, 0)) != 0 ||
        (rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                       POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETPGROUP)) != 0)
        return -rc;
    return 0;
}

/* Moves our descriptors above CHANNEL_FD, so that dup2() to 0..CHANNEL_FD does not overwrite
 * one. */
static int lift(struct ends *ends)
{
    for (int i = 0; i < ENDS; i++) {
        int high;

        if (ends->fds[i] < 0 || ends->fds[i] > CHANNEL_FD)
            continue;
        high = fcntl(ends->fds[i], F_DUPFD_CLOEXEC, CHANNEL_FD + 1);
        if (high < 0)
            return -errno;
        close(ends->fds[i]);
        ends->fds[i] = high;
    }
    return 0;
}

static int start(const struct ssh_spawn *spawn, const struct ends *ends, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc != 0)
        return -rc;
    if ((rc = posix_spawnattr_init(&attributes)) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return -rc;
    }
    for (int i = 0; i <= CHANNEL_FD && rc == 0; i++)
        if (ends->fds[2 * i] >= 0)
            rc = posix_spawn_file_actions_adddup2(&actions, ends->fds[2 * i], i);
    if (rc == 0)
        rc = -set_attributes(&attributes);
    if (rc == 0)
        rc = posix_spawnp(pid, spawn->path, &actions, &attributes, spawn->argv,
                          spawn->env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -rc;
}

static int take(struct ends *ends, int place)
{
    const int fd = ends->fds[2 * place + 1];

    ends->fds[2 * place + 1] = -1;
    return fd;
}

/* The caller owns our ends. The child's ends are closed here, and after a failure all of them. */
pid_t ssh_spawn(struct ssh_spawn *spawn, struct ctrun_error *err)
{
    struct ends ends;
    pid_t pid = -1;
    int rc = open_ends(&ends, spawn);

    if (rc == 0)
        rc = lift(&ends);
    if (rc == 0)
        rc = start(spawn, &ends, &pid);
    if (rc == 0) {
        spawn->input = take(&ends, STDIN_FILENO);
        spawn->out = take(&ends, STDOUT_FILENO);
        spawn->err = take(&ends, STDERR_FILENO);
        spawn->channel = take(&ends, CHANNEL_FD);
    }
    close_all(&ends);
    return rc < 0 ? ct_fail(err, rc, "%s: %s", spawn->path, strerror(-rc)) : pid;
}
