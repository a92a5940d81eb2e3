/* SPDX-License-Identifier: Apache-2.0 */
/* The messages are those of template.h. The template runs Python of the user's choice, so its
 * messages are not trusted: the kernel confirms who has sent a message, and whose child that
 * process is. */
#include "agent/process/template_fork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/process/raw.h"
#include "worker_sdk/base/clock.h"

enum {
    FDS = 5 /* sent for each worker: its memory, the barrier, its three streams */
};

/* One call of template_fork(), on the caller's stack. Every worker gets the read end of the
 * barrier; only this process has the write end, so that closing it ends all workers that have
 * not begun. */
struct batch {
    int socket;
    struct template_worker *workers;
    int count;
    int barrier[2];
    uint64_t limit_ms, deadline_ms;
    int there; /* workers that have reported that they exist */
    /* the process that has reported that they are our children; 0: none yet */
    pid_t template;
};

/* ---- What is sent ----------------------------------------------------------------------- */

static size_t list_bytes(char *const *list, uint32_t *count)
{
    size_t bytes = 0;

    for (*count = 0; list[*count]; ++*count)
        bytes += strlen(list[*count]) + 1;
    return bytes;
}

static char *put_list(char *at, char *const *list)
{
    for (; *list; list++)
        at = stpcpy(at, *list) + 1;
    return at;
}

/* argv and environment of a worker (template.h), in a memfd, because they may be too large for a
 * datagram. The caller closes it. */
/* A memfd, or a negative errno. */
static int write_request(const struct template_worker *worker)
{
    uint32_t counts[2];
    const size_t size = sizeof counts + list_bytes(worker->argv, &counts[0]) +
                        list_bytes(worker->env, &counts[1]);
    const int fd = memfd_create("ctrun-worker", MFD_CLOEXEC);
    char *memory;

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size) < 0 ||
        (memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
            MAP_FAILED) {
        const int rc = -errno;

        close(fd);
        return rc;
    }
    memcpy(memory, counts, sizeof counts);
    put_list(put_list(memory + sizeof counts, worker->argv), worker->env);
    (void)munmap(memory, size);
    return fd;
}

/* After a call that failed with `error`: 0 to try it again, when there may be room or a message. */
static int wait_again(const struct batch *batch, int error, short events)
{
    struct pollfd poll_fd = {.fd = batch->socket, .events = events};
    const int left_ms = ct_left_ms(batch->deadline_ms);

    if (error != EAGAIN)
        return error == EINTR ? 0 : -error;
    if (left_ms == 0)
        return -ETIMEDOUT;
    return poll(&poll_fd, 1, left_ms) < 0 && errno != EINTR ? -errno : 0;
}

static int send_message(const struct batch *batch, const struct msghdr *message)
{
    int rc;

    while (sendmsg(batch->socket, message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        if ((rc = wait_again(batch, errno, POLLOUT)) < 0)
            return rc;
    return 0;
}

static int send_worker(const struct batch *batch, int number)
{
    const struct template_worker *worker = &batch->workers[number];
    const int memory = write_request(worker);
    const int fds[FDS] = {memory, batch->barrier[0], worker->fds[0], worker->fds[1],
                          worker->fds[2]};
    union {
        char bytes[CMSG_SPACE(sizeof fds)];
        struct cmsghdr header;
    } control = {{0}};
    struct iovec part = {&number, sizeof number};
    const struct msghdr message = {.msg_iov = &part,
                                   .msg_iovlen = 1,
                                   .msg_control = control.bytes,
                                   .msg_controllen = sizeof control.bytes};
    int rc;

    if (memory < 0)
        return memory;
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fds),
                                      .cmsg_level = SOL_SOCKET,
                                      .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, sizeof fds);
    rc = send_message(batch, &message);
    close(memory);
    return rc;
}

static int send_end(const struct batch *batch)
{
    char end = 'E';
    struct iovec part = {&end, sizeof end};
    const struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    return send_message(batch, &message);
}

/* ---- What comes back -------------------------------------------------------------------- */

struct reply {
    char kind;
    int32_t numbers[2];
    pid_t pid; /* of the sender */
};

/* A worker sends its W itself: the credentials that the kernel adds give its pid. */
static int receive(const struct batch *batch, struct reply *reply)
{
    char data[1 + sizeof reply->numbers];
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr header;
    } control;
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *header;
    struct ucred sender;
    ssize_t got;
    int rc;

    while ((got = recvmsg(batch->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) <
           0)
        if ((rc = wait_again(batch, errno, POLLIN)) < 0)
            return rc;
    header = CMSG_FIRSTHDR(&message);
    if (got == 0 || data[0] == 'N') /* it ends, after template_learn() */
        return -EPIPE;
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || !header ||
        header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_CREDENTIALS)
        return -EPROTO;
    memcpy(&sender, CMSG_DATA(header), sizeof sender);
    *reply = (struct reply){.kind = data[0], .pid = sender.pid};
    memcpy(reply->numbers, data + 1, (size_t)got - 1);
    return 0;
}

/* Sets its CPUs before it runs. A worker that has died meanwhile is no failure. */
static int bind_worker(const struct template_worker *worker, struct ctrun_error *err)
{
    const struct bind *bind = worker->bind;
    long rc;

    if (!bind || !bind->has_cpus)
        return 0;
    rc = raw_call(SYS_sched_setaffinity, worker->pid, sizeof bind->cpus.sets,
                  raw_pointer(bind->cpus.sets), 0);
    return rc >= 0 || rc == -ESRCH
               ? 0
               : ct_fail(err, (int)rc, "bind to CPUs: %s", strerror((int)-rc));
}

static int fail_talk(const struct batch *batch, int rc, const char *what,
                     struct ctrun_error *err)
{
    if (rc == -ETIMEDOUT)
        return ct_fail(
            err, rc,
            "the template does not answer: after %.1f s it has made %d of %d "
            "workers",
            (double)batch->limit_ms / 1000, batch->there, batch->count);
    if (rc == -EPIPE || rc == -ECONNRESET)
        return ct_fail(err, -EPIPE, "the template has closed its socket");
    return ct_fail(err, rc, "%s: %s", what, strerror(-rc));
}

static int take_reply(struct batch *batch, struct ctrun_error *err)
{
    struct template_worker *worker;
    struct reply reply;
    int rc;

    if ((rc = receive(batch, &reply)) < 0)
        return rc == -EPROTO
                   ? ct_fail(err, rc, "the template has sent a malformed answer")
                   : fail_talk(batch, rc, "cannot receive from the template", err);
    if (reply.kind == 'D' && reply.numbers[0] == 0) {
        batch->template = reply.pid;
        return 0;
    }
    if (reply.kind == 'W' && reply.numbers[1] < 0)
        return ct_fail(err, -EAGAIN, "the template cannot fork: %s",
                       strerror(-reply.numbers[1]));
    if (reply.kind != 'W' || reply.numbers[0] < 0 || reply.numbers[0] >= batch->count ||
        batch->workers[reply.numbers[0]].pid != 0)
        return ct_fail(err, -EPROTO, "the template has sent a malformed answer");
    worker = &batch->workers[reply.numbers[0]];
    worker->pid = reply.pid;
    batch->there++;
    return bind_worker(worker, err);
}

/* waitid() finds only our own children. */
static int check_children(const struct batch *batch, struct ctrun_error *err)
{
    siginfo_t info;

    for (int i = 0; i < batch->count; i++)
        if (batch->workers[i].pid == batch->template ||
            waitid(P_PID, (id_t)batch->workers[i].pid, &info,
                   WEXITED | WNOHANG | WNOWAIT) < 0)
            return ct_fail(err, -ECHILD,
                           "pid %d of the template is not a child of this agent",
                           (int)batch->workers[i].pid);
    return 0;
}

/* Writes a byte for each worker: each reads one. */
static int open_barrier(const struct batch *batch)
{
    for (int i = 0; i < batch->count; i++)
        if (write(batch->barrier[1], "g", 1) != 1)
            return -errno;
    return 0;
}

/* The barrier opens last, when all workers are known to exist and to be our children. After an
 * earlier error it stays shut. */
static int run_batch(struct batch *batch, struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; i < batch->count && rc == 0; i++)
        rc = send_worker(batch, i);
    if (rc == 0)
        rc = send_end(batch);
    if (rc < 0)
        return fail_talk(batch, rc, "cannot send to the template", err);
    while (rc == 0 && (batch->template == 0 || batch->there < batch->count))
        rc = take_reply(batch, err);
    if (rc == 0)
        rc = check_children(batch, err);
    if (rc == 0 && (rc = open_barrier(batch)) < 0)
        rc = ct_fail(err, rc, "pipe: %s", strerror(-rc));
    return rc;
}

uint64_t template_fork_limit_ms(int count, uint64_t left_ms)
{
    const uint64_t wanted = TEMPLATE_FORK_MS + (uint64_t)count * TEMPLATE_FORK_EACH_MS;
    const uint64_t most = left_ms > 2 * TEMPLATE_FORK_SPARE_MS
                              ? left_ms - TEMPLATE_FORK_SPARE_MS
                              : left_ms / 2;

    return wanted < most ? wanted : most;
}

int template_fork(int socket, struct template_worker *workers, int count,
                  uint64_t limit_ms, struct ctrun_error *err)
{
    struct batch batch = {.socket = socket,
                          .workers = workers,
                          .count = count,
                          .limit_ms = limit_ms,
                          .deadline_ms = ct_deadline_ms(limit_ms)};
    int rc;

    if (count == 0)
        return 0;
    for (int i = 0; i < count; i++)
        workers[i].pid = 0;
    if (pipe2(batch.barrier, O_CLOEXEC) < 0)
        return ct_fail(err, -errno, "pipe: %s", strerror(errno));
    rc = run_batch(&batch, err);
    close(batch.barrier[0]);
    close(batch.barrier[1]); /* after an error, waiting workers read its end and exit */
    return rc;
}
