/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha_keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/kernel.h"

enum {
    ASK_MS = 20000, /* openssl may be slow while a job starts */
    WAIT_MS = 3000,
    WAIT_STEP_MS = 10,
    LOG_TAIL_BYTES = 400,
    LOG_LOOK_BYTES = 8192, /* the stack of etcd's own crash is shorter */
};

#define FOLDER_PREFIX "ctrun-ha-"

struct keeper {
    int fd;
    int child; /* signalfd: SIGCHLD */
    const char *etcd, *openssl;
    char base[HA_FOLDER_MAX - 32]; /* where folders are made */
    char folder[HA_FOLDER_MAX];    /* the current one; empty: none yet */
    int lock;                      /* held on the folder; -1: none */
    int ports[2];                  /* sockets that hold the ports; -1: none */
    struct ct_addr addr;
    pid_t pid; /* etcd's; 0: it does not run */
};

/* ---- Folders ------------------------------------------------------------------------- */

/* Removes all in the folder, two levels below at most: etcd makes no more. Follows no link. */
static void remove_below(int parent, const char *name, int depth)
{
    const int fd = openat(parent, name,
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) < 0 && depth > 0)
            remove_below(fd, entry->d_name, depth - 1);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

static int lock_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Folders of keepers that were killed together with their agents: nobody has them locked. */
static void remove_stale(const char *base)
{
    DIR *dir = opendir(base);
    const struct dirent *entry;
    char path[HA_FOLDER_MAX];
    struct stat info;

    while (dir && (entry = readdir(dir))) {
        int lock;

        if (!ct_starts_with(entry->d_name, FOLDER_PREFIX) ||
            ct_format(path, sizeof path, "%s/%s", base, entry->d_name) < 0 ||
            (lock = lock_folder(path)) < 0)
            continue;
        if (fstat(lock, &info) == 0 && info.st_uid == geteuid())
            remove_below(AT_FDCWD, path, 3);
        close(lock);
    }
    if (dir)
        closedir(dir);
}

/* The new folder is the keeper's working directory. */
static int make_folder(struct keeper *keeper, struct ctrun_error *err)
{
    if (ct_format(keeper->folder, sizeof keeper->folder, "%s/" FOLDER_PREFIX "XXXXXX",
                  keeper->base) >= 0 &&
        mkdtemp(keeper->folder) && (keeper->lock = lock_folder(keeper->folder)) >= 0 &&
        chdir(keeper->folder) == 0)
        return 0;
    return ct_fail(err, -errno, "no folder can be made in %s: %s", keeper->base,
                   strerror(errno));
}

static void drop_folder(struct keeper *keeper)
{
    (void)chdir("/");
    ct_close(&keeper->lock);
    if (keeper->folder[0])
        remove_below(AT_FDCWD, keeper->folder, 3);
    keeper->lock = -1;
    keeper->folder[0] = '\0';
}

/* ---- Ports --------------------------------------------------------------------------- */

/* Bound, and not listening: etcd binds the same port (both ask for SO_REUSEADDR), nobody else gets
 * it from the kernel. A negative errno. */
static int hold_port(const struct keeper *keeper, const struct ct_port_range *range,
                     uint32_t seed, uint16_t *port)
{
    struct ct_addr addr = keeper->addr;
    const int on = 1;
    const int fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = -errno;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
        return rc;
    for (int i = 0; i < ct_port_range_count(range); i++) {
        ct_addr_set_port(&addr, ct_port_range_at(range, seed, i));
        /* Two sockets that are only bound would share the port; a listening socket refuses that. */
        if (bind(fd, &addr.any, addr.length) == 0 && listen(fd, 1) == 0 &&
            getsockname(fd, &addr.any, &addr.length) == 0) {
            *port = (uint16_t)ct_addr_port(&addr);
            return fd;
        }
        rc = -errno;
    }
    close(fd);
    return rc;
}

/* A socket that is bound to the port and does not listen, in place of one that does. */
static int stop_listening(const struct keeper *keeper, int fd, uint16_t port)
{
    struct ct_addr addr = keeper->addr;
    const int on = 1;
    const int held = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    close(fd);
    ct_addr_set_port(&addr, port);
    if (held >= 0 && setsockopt(held, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(held, &addr.any, addr.length) == 0)
        return held;
    if (held >= 0)
        close(held);
    return -1;
}

static void free_ports(struct keeper *keeper)
{
    for (int i = 0; i < 2; i++) {
        ct_close(&keeper->ports[i]);
    }
}

static int reserve(struct keeper *keeper, const struct ha_keeper_request *request,
                   struct ha_keeper_reply *reply, struct ctrun_error *err)
{
    uint16_t *const ports[2] = {&reply->client_port, &reply->peer_port};
    int fds[2] = {-1, -1};
    int rc;

    free_ports(keeper);
    if ((rc = ct_addr_parse(request->addr, 0, &keeper->addr)) < 0)
        return ct_fail(err, rc, "%s is no address", request->addr);
    for (int i = 0; i < 2; i++)
        if ((fds[i] = hold_port(keeper, &request->ports, (uint32_t)getpid(),
                                ports[i])) < 0)
            rc = fds[i];
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            keeper->ports[i] = stop_listening(keeper, fds[i], *ports[i]);
    return rc < 0 ? ct_fail(err, rc, "no port can be opened at %s: %s", request->addr,
                            strerror(-rc))
                  : 0;
}

/* ---- etcd ---------------------------------------------------------------------------- */

static void format_url(char *dst, size_t size, const struct keeper *keeper, int fd)
{
    struct ct_addr addr = keeper->addr;
    char text[CT_ADDR_TEXT_MAX];

    addr.length = sizeof addr.v6;
    if (fd >= 0)
        (void)getsockname(fd, &addr.any, &addr.length);
    ct_addr_format(text, &addr);
    (void)ct_format(dst, size, "https://%s", text);
}

/* In the child. Etcd's output goes to the file `log`. */
static void become_etcd(const struct keeper *keeper, char *const *argv, pid_t parent)
{
    char *const env[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};
    const int null = open("/dev/null", O_RDWR);
    const int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    sigset_t none;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, 0);
    dup2(null, 1);
    dup2(log < 0 ? null : log, 2);
    (void)ct_close_range(3, ~0U);
    execve(keeper->etcd, argv, env);
    _exit(127);
}

static int fork_etcd(struct keeper *keeper, const char *const argv[],
                     struct ctrun_error *err)
{
    const pid_t self = getpid();

    keeper->pid = fork();
    if (keeper->pid == 0)
        become_etcd(keeper, (char *const *)(uintptr_t)argv, self);
    if (keeper->pid > 0)
        return 0;
    keeper->pid = 0;
    return ct_fail(err, -errno, "fork: %s", strerror(errno));
}

static int start_etcd(struct keeper *keeper, const struct ha_keeper_request *request,
                      struct ctrun_error *err)
{
    char client[CT_ADDR_TEXT_MAX + 16], peer[CT_ADDR_TEXT_MAX + 16];
    /* A member never starts again with the same data: it is replaced. So its data may be
     * small, and old entries are of no use. */
    const char *const argv[] = {keeper->etcd,
                                "--name",
                                request->name,
                                "--data-dir=data",
                                "--listen-client-urls",
                                client,
                                "--advertise-client-urls",
                                client,
                                "--listen-peer-urls",
                                peer,
                                "--initial-advertise-peer-urls",
                                peer,
                                "--initial-cluster",
                                request->cluster,
                                "--initial-cluster-state",
                                request->joins ? "existing" : "new",
                                "--initial-cluster-token",
                                request->token,
                                "--client-cert-auth",
                                "--trusted-ca-file=ca.pem",
                                "--cert-file=me.pem",
                                "--key-file=me.key",
                                "--peer-client-cert-auth",
                                "--peer-trusted-ca-file=ca.pem",
                                "--peer-cert-file=me.pem",
                                "--peer-key-file=me.key",
                                "--bcrypt-cost=4", /* the password is 256 random bits */
                                "--snapshot-count=1000",
                                "--auto-compaction-mode=revision",
                                "--auto-compaction-retention=100",
                                "--max-wals=1",
                                "--max-snapshots=1",
                                "--logger=zap",
                                "--log-outputs=stderr",
                                "--log-level=warn",
                                NULL};

    if (keeper->pid != 0 || !keeper->folder[0] || keeper->ports[0] < 0 ||
        keeper->ports[1] < 0)
        return ct_fail(err, -EINVAL, "the folder and ports of etcd are not prepared");
    format_url(client, sizeof client, keeper, keeper->ports[0]);
    format_url(peer, sizeof peer, keeper, keeper->ports[1]);
    remove_below(AT_FDCWD, "data", 3);
    return fork_etcd(keeper, argv, err);
}

static void stop_etcd(struct keeper *keeper)
{
    if (keeper->pid > 0) {
        (void)kill(keeper->pid, SIGKILL);
        while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    keeper->pid = 0;
    if (keeper->folder[0])
        remove_below(AT_FDCWD, "data", 3);
    free_ports(keeper);
}

/* The end of etcd's output: of its last message what comes after the key, or the last bytes. */
static void read_log(char *dst, size_t size)
{
    static const char key[] = "\"msg\":";
    const int fd = open("log", O_RDONLY | O_CLOEXEC);
    char look[LOG_LOOK_BYTES + 1];
    const char *from = look;
    ssize_t n = -1;

    if (fd >= 0) {
        const off_t end = lseek(fd, 0, SEEK_END);

        (void)lseek(fd, end > LOG_LOOK_BYTES ? end - LOG_LOOK_BYTES : 0, SEEK_SET);
        n = read(fd, look, LOG_LOOK_BYTES);
        close(fd);
    }
    look[n > 0 ? n : 0] = '\0';
    if (n > LOG_TAIL_BYTES)
        from = look + n - LOG_TAIL_BYTES;
    for (const char *at = look; (at = strstr(at, key));)
        from = at += sizeof key - 1;
    (void)ct_format(dst, size, "%.*s", LOG_TAIL_BYTES, from);
    for (char *at = dst; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
}

/* ---- The process --------------------------------------------------------------------- */

static void on_child(struct keeper *keeper)
{
    struct ha_keeper_reply reply = {.has_ended = true};
    struct signalfd_siginfo info;
    int status;

    (void)!read(keeper->child, &info, sizeof info);
    if (keeper->pid == 0 || waitpid(keeper->pid, &status, WNOHANG) != keeper->pid)
        return;
    keeper->pid = 0;
    if (WIFSIGNALED(status)) /* its output has nothing of that */
        (void)ct_format(reply.text, sizeof reply.text, "signal %d", WTERMSIG(status));
    else
        read_log(reply.text, sizeof reply.text);
    if (!*reply.text)
        (void)ct_format(reply.text, sizeof reply.text,
                        "exit code %d, without a message", WEXITSTATUS(status));
    (void)send(keeper->fd, &reply, sizeof reply, MSG_NOSIGNAL);
}

/* If openssl failed, with its own message. */
static int certify(const struct keeper *keeper, const struct ha_keeper_request *request,
                   struct ctrun_error *err)
{
    char log[LOG_TAIL_BYTES + 1];
    const int rc = ha_certs_make(keeper->openssl, request->secret, request->addr, err);

    if (rc == -EIO)
        read_log(log, sizeof log);
    return rc == -EIO && *log ? ct_fail(err, rc, "%s cannot make certificates: %s",
                                        keeper->openssl, log)
                              : rc;
}

static void answer(struct keeper *keeper, const struct ha_keeper_request *request)
{
    struct ha_keeper_reply reply = {0};
    struct ctrun_error err = {0};

    switch (request->verb) {
    case HA_KEEPER_RESERVE: reply.rc = reserve(keeper, request, &reply, &err); break;
    case HA_KEEPER_CERTIFY:
        if (keeper->pid > 0)
            stop_etcd(keeper);
        drop_folder(keeper);
        if ((reply.rc = make_folder(keeper, &err)) == 0)
            reply.rc = certify(keeper, request, &err);
        (void)ct_copy(reply.folder, sizeof reply.folder, keeper->folder);
        break;
    case HA_KEEPER_START: reply.rc = start_etcd(keeper, request, &err); break;
    case HA_KEEPER_STOP: stop_etcd(keeper); break;
    }
    if (reply.rc < 0)
        (void)ct_copy(reply.text, sizeof reply.text, err.text);
    (void)send(keeper->fd, &reply, sizeof reply, MSG_NOSIGNAL);
}

static void serve(struct keeper *keeper)
{
    struct pollfd polls[2] = {{.fd = keeper->fd, .events = POLLIN},
                              {.fd = keeper->child, .events = POLLIN}};
    static struct ha_keeper_request request;

    for (;;) {
        if (poll(polls, 2, -1) < 0 && errno != EINTR)
            return;
        if (polls[1].revents)
            on_child(keeper);
        if (polls[0].revents &&
            recv(keeper->fd, &request, sizeof request, 0) != (ssize_t)sizeof request)
            return; /* the agent is gone */
        if (polls[0].revents)
            answer(keeper, &request);
        explicit_bzero(request.secret, sizeof request.secret);
    }
}

static void choose_base(struct keeper *keeper)
{
    const char *base = getenv("TMPDIR");

    if (!base || *base != '/' || ct_copy(keeper->base, sizeof keeper->base, base) < 0)
        (void)ct_copy(keeper->base, sizeof keeper->base, "/tmp");
}

static void keep(int fd, const char *etcd, const char *openssl)
{
    struct keeper keeper = {
        .fd = fd, .etcd = etcd, .openssl = openssl, .lock = -1, .ports = {-1, -1}};
    sigset_t all;

    (void)setsid();
    (void)prctl(PR_SET_NAME, "ctrun-ha");
    (void)prctl(PR_SET_DUMPABLE, 0); /* no core dump: it has the secret */
    sigfillset(&all); /* it ends when the agent does, and by nothing else */
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&all);
    sigaddset(&all, SIGCHLD);
    keeper.child = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    choose_base(&keeper);
    remove_stale(keeper.base);
    if (keeper.child >= 0)
        serve(&keeper);
    stop_etcd(&keeper);
    drop_folder(&keeper);
}

/* Closes inherited descriptors: a reader would wait forever for the end of a pipe that the keeper
 * holds. */
static void let_go(int fd)
{
    const int null = open("/dev/null", O_RDWR);

    for (int i = 0; i < 3; i++)
        dup2(null, i);
    if (fd > 3)
        (void)ct_close_range(3, (unsigned)fd - 1);
    (void)ct_close_range((unsigned)fd + 1, ~0U);
}

int ha_keeper_start(struct ha_keeper *keeper, const char *etcd, const char *openssl,
                    struct ctrun_error *err)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return ct_fail(err, -errno, "--ha: socketpair: %s", strerror(errno));
    keeper->fd = ends[0];
    keeper->pid = fork();
    if (keeper->pid == 0) {
        let_go(ends[1]);
        keep(ends[1], etcd, openssl);
        _exit(0);
    }
    close(ends[1]);
    return keeper->pid < 0 ? ct_fail(err, -errno, "--ha: fork: %s", strerror(errno))
                           : 0;
}

void ha_keeper_wait(const struct ha_keeper *keeper)
{
    const uint64_t deadline_ms = ct_deadline_ms(WAIT_MS);
    const struct timespec step = {0, WAIT_STEP_MS * 1000000L};

    if (keeper->pid <= 0)
        return;
    while (waitpid(keeper->pid, NULL, WNOHANG) == 0 && ct_left_ms(deadline_ms) > 0)
        (void)nanosleep(&step, NULL);
}

/* ---- The agent's side ---------------------------------------------------------------- */

static const char has_ended_text[] = "the process that runs etcd has ended";

int ha_keeper_ask(const struct ha_keeper *keeper,
                  const struct ha_keeper_request *request,
                  struct ha_keeper_reply *reply, bool *has_ended,
                  struct ctrun_error *err)
{
    const uint64_t deadline_ms = ct_deadline_ms(ASK_MS);
    struct pollfd poll_fd = {.fd = keeper->fd, .events = POLLIN};

    if (send(keeper->fd, request, sizeof *request, MSG_NOSIGNAL) < 0)
        return ct_fail(err, -EPIPE, "%s", has_ended_text);
    do {
        ssize_t n;

        if (poll(&poll_fd, 1, ct_left_ms(deadline_ms)) == 0)
            return ct_fail(err, -ETIMEDOUT,
                           "the process that runs etcd did not answer for %d s",
                           ASK_MS / 1000);
        n = recv(keeper->fd, reply, sizeof *reply, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n != (ssize_t)sizeof *reply)
            return ct_fail(err, -EPIPE, "%s", has_ended_text);
        *has_ended |= reply->has_ended;
        if (!reply->has_ended)
            return reply->rc < 0 ? ct_fail(err, reply->rc, "%s", reply->text) : 0;
    } while (true);
}

bool ha_keeper_has_ended(const struct ha_keeper *keeper, struct ha_keeper_reply *reply)
{
    const ssize_t n = recv(keeper->fd, reply, sizeof *reply, MSG_DONTWAIT);

    if (n == (ssize_t)sizeof *reply)
        return reply->has_ended;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    *reply = (struct ha_keeper_reply){0};
    (void)ct_copy(reply->text, sizeof reply->text, has_ended_text);
    return true;
}
