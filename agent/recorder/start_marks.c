/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/recorder/start_marks.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    OWN_NUMBER = 0, /* no process below us has this pid (recorder_folder_socket()) */
    TURN_MAX = 64,  /* datagrams in one turn of the loop */
    TEXT_MAX_BYTES = 128 * 1024
};

struct start_marks {
    struct loop_watch *socket;
    start_marks_fn *fn;
    void *context;
    char text[TEXT_MAX_BYTES]; /* of a datagram */
};

/* The sender of the next datagram; 0: it is not known; -1: there is no datagram. */
static pid_t receive(int fd, char text[TEXT_MAX_BYTES])
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {text, TEXT_MAX_BYTES - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    const struct cmsghdr *header;
    struct ucred peer;
    ssize_t length;

    if ((length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0)
        return -1;
    if (message.msg_flags & MSG_TRUNC) {
        ct_info("--warm=auto: the names of modules of a worker are left out: they are "
                "longer than %d bytes",
                TEXT_MAX_BYTES - 1);
        length = 0;
    }
    text[length] = '\0';
    header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET ||
        header->cmsg_type != SCM_CREDENTIALS)
        return 0;
    memcpy(&peer, CMSG_DATA(header), sizeof peer);
    return peer.uid == geteuid() ? peer.pid : 0;
}

static enum start_mark find_mark(const char *text)
{
    if (strcmp(text, "!import") == 0) /* no module has such a name */
        return START_IMPORTED;
    return strcmp(text, "!init") == 0 ? START_JOINED : START_STEPPED;
}

static void on_datagram(void *context, unsigned events)
{
    struct start_marks *marks = context;
    const int fd = loop_watch_fd(marks->socket);
    int left = TURN_MAX;

    (void)events;
    for (pid_t pid; left-- > 0 && (pid = receive(fd, marks->text)) >= 0;) {
        const pid_t session = pid > 0 ? getsid(pid) : -1;

        if (session > 0)
            marks->fn(marks->context, session, find_mark(marks->text), marks->text);
    }
}

/* A bound socket, or -errno. */
static int open_socket(const struct recorder_folder *folder)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[PATH_MAX];
    const int on = 1;
    int fd, rc;

    recorder_folder_socket(folder, path, OWN_NUMBER);
    if (ct_copy(address.sun_path, sizeof address.sun_path, path) < 0)
        return -ENAMETOOLONG;
    if ((fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0 &&
        fchmod(fd, 0600) == 0 && /* before bind(), which makes the file */
        bind(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    rc = -errno;
    ct_close(&fd);
    return rc;
}

int start_marks_open(struct start_marks **out, struct loop *loop,
                     const struct recorder_folder *folder, start_marks_fn *fn,
                     void *context, struct ctrun_error *err)
{
    struct start_marks *marks = ct_zalloc(sizeof *marks);
    const int fd = marks ? open_socket(folder) : -ENOMEM;

    if (fd >= 0) {
        marks->fn = fn;
        marks->context = context;
        marks->socket = loop_watch_open(loop, fd, on_datagram, marks);
    }
    if (fd < 0 || !marks->socket) {
        free(marks);
        return ct_fail(err, fd < 0 ? fd : -ENOMEM, "socket for start marks: %s",
                       strerror(fd < 0 ? -fd : ENOMEM));
    }
    loop_watch_for(marks->socket, LOOP_READ);
    *out = marks;
    return 0;
}

void start_marks_close(struct start_marks *marks)
{
    if (!marks)
        return;
    loop_watch_close(marks->socket);
    free(marks);
}
