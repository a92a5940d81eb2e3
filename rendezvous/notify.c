/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/notify.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"

int notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t length;
    int fd, rc = 0;

    if (!path || !*path)
        return 0;
    if ((path[0] != '/' && path[0] != '@') ||
        ct_copy(addr.sun_path, sizeof addr.sun_path, path) < 0)
        return -EINVAL;
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    if (path[0] == '@')
        addr.sun_path[0] = '\0'; /* an abstract name */
    if ((fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
        return -errno;
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
               length) < 0)
        rc = -errno;
    close(fd);
    return rc;
}
