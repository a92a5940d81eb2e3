/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1, one request per connection. */
#include "agent/recorder/recorder_client.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/watch/live_stack.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

enum {
    REQUEST_MAX_BYTES = 256,
    HEAD_MAX_BYTES = 4096,
    READ_BYTES = 64 * 1024,
    DEPTH_MAX = 8 /* depth of shells that wait for one another, above a Python */
};

const struct recorder_kind recorder_kinds[RECORDER_KINDS] = {
    {"", "fr_trace_json", "fr_trace_json"},
    {"nccl:", "dump_nccl_trace_json?onlyactive=true", "dump_nccl_trace_json"}};

static int wait_for(int fd, short events, uint64_t deadline_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    const uint64_t now_ms = ct_now_ms();
    int rc;

    if (now_ms >= deadline_ms)
        return -ETIMEDOUT;
    rc = poll(&poll_fd, 1, (int)(deadline_ms - now_ms));
    return rc > 0 ? 0 : rc == 0 ? -ETIMEDOUT : errno == EINTR ? 0 : -errno;
}

/* Connecting to a Unix socket succeeds or fails at once. */
static int open_connection(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;

    if (ct_copy(address.sun_path, sizeof address.sun_path, path) < 0)
        return -ENAMETOOLONG;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        const int rc = -errno;

        close(fd);
        return rc;
    }
    return fd < 0 ? -errno : fd;
}

/* The request fits into any socket's buffer. */
static int send_request(int fd, const char *handler)
{
    char request[REQUEST_MAX_BYTES];
    ssize_t sent;
    const int length = ct_format(request, sizeof request,
                                 "POST /handler/%s HTTP/1.1\r\n"
                                 "Host: localhost\r\n"
                                 "Content-Length: 0\r\n"
                                 "Connection: close\r\n\r\n",
                                 handler);

    if (length < 0)
        return length;
    sent = send(fd, request, (size_t)length, MSG_NOSIGNAL);
    return sent == length ? 0 : sent < 0 ? -errno : -EBADMSG;
}

static int receive_all(struct ct_buf *in, int fd, uint64_t deadline_ms)
{
    for (;;) {
        uint8_t *at;
        ssize_t got;
        int rc = ct_buf_reserve(in, READ_BYTES, &at);

        if (rc < 0 || (rc = wait_for(fd, POLLIN, deadline_ms)) < 0)
            return rc;
        got = recv(fd, at, READ_BYTES, 0);
        if (got == 0)
            return 0;
        if (got > 0)
            ct_buf_commit(in, (size_t)got);
        else if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
}

/* The body of an answer with status "200 OK". */
static int take_body(struct ct_buf *out, const struct ct_buf *in)
{
    static const char good[] = "HTTP/1.1 200 ";
    const char *text = (const char *)ct_buf_data(in);
    const size_t length = ct_buf_length(in);
    const size_t most = length < HEAD_MAX_BYTES ? length : HEAD_MAX_BYTES;
    const char *end = memmem(text, most, "\r\n\r\n", 4);

    if (!end || memcmp(text, good, sizeof good - 1) != 0)
        return -EBADMSG;
    return ct_buf_append(out, end + 4, length - (size_t)(end + 4 - text));
}

int recorder_ask(const char *path, const char *handler)
{
    const int fd = open_connection(path);
    const int rc = fd < 0 ? fd : send_request(fd, handler);

    if (rc < 0 && fd >= 0)
        close(fd);
    return rc < 0 ? rc : fd;
}

int recorder_take(struct ct_buf *out, int fd, uint64_t deadline_ms)
{
    struct ct_buf in;
    int rc;

    ct_buf_init(&in, out->max + READ_BYTES);
    if ((rc = receive_all(&in, fd, deadline_ms)) == 0)
        rc = take_body(out, &in);
    ct_buf_deinit(&in);
    close(fd);
    return rc;
}

int recorder_ask_worker(const char *folder, pid_t pid, const char *handler)
{
    char path[PATH_MAX];
    int fd = -ENOENT;

    for (int depth = 0; *folder && pid && fd == -ENOENT && depth < DEPTH_MAX; depth++) {
        if (ct_format(path, sizeof path, "%s%d", folder, (int)pid) < 0)
            return -ENAMETOOLONG;
        fd = recorder_ask(path, handler);
        pid = live_stack_only_child(pid);
    }
    return fd;
}

/* The next of these connections on which something has come; -1: none in time. */
static int await_answer(const int *fds, int count, uint64_t deadline_ms)
{
    struct pollfd list[RECORDER_KINDS * RECORDER_BATCH];
    bool waits = false;
    int rc;

    for (int i = 0; i < count; i++) {
        list[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        waits |= fds[i] >= 0;
    }
    if (!waits)
        return -1;
    do
        rc = poll(list, (nfds_t)count, ct_left_ms(deadline_ms));
    while (rc < 0 && errno == EINTR);
    for (int i = 0; i < count && rc > 0; i++)
        if (list[i].revents)
            return i;
    return -1;
}

void recorder_take_all(int *fds, int count, uint64_t deadline_ms,
                       void (*fn)(void *context, int place, const struct ct_buf *text),
                       void *context)
{
    int next, open = 0;

    for (int i = 0; i < count; i++)
        open += fds[i] >= 0;
    while ((next = await_answer(fds, count, deadline_ms)) >= 0) {
        const uint64_t share_ms = (uint64_t)ct_left_ms(deadline_ms) / 2;
        struct ct_buf text;

        ct_buf_init(&text, RECORDER_TEXT_MAX_BYTES);
        if (recorder_take(&text, fds[next],
                          --open > 0 ? deadline_ms - share_ms : deadline_ms) == 0)
            fn(context, next, &text);
        ct_buf_deinit(&text);
        fds[next] = -1;
    }
    for (int i = 0; i < count; i++)
        ct_close(&fds[i]);
}
