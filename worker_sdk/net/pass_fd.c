/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/pass_fd.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

ssize_t ct_send_with_fd(int socket, const void *data, size_t length, int fd)
{
    union control control = {0};
    struct iovec part = {(void *)(uintptr_t)data, length};
    struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *head;

        packet.msg_control = control.bytes;
        packet.msg_controllen = sizeof control.bytes;
        head = CMSG_FIRSTHDR(&packet);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    return sendmsg(socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take(struct msghdr *packet, int *passed)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(packet); head;
         head = CMSG_NXTHDR(packet, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; i++) {
            if (*passed >= 0)
                close(*passed);
            memcpy(passed, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
        }
    }
}

ssize_t ct_receive_with_fd(int socket, void *dst, size_t size, int *passed)
{
    union control control;
    struct iovec part = {dst, size};
    struct msghdr packet = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    const ssize_t n = recvmsg(socket, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

    if (n >= 0)
        take(&packet, passed);
    return n;
}
