/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/net/addr.h"

bool ct_tcp_is_same_host(int fd)
{
    struct ct_addr near = {.length = sizeof near.v6}, far = {.length = sizeof far.v6};

    return getsockname(fd, &near.any, &near.length) == 0 &&
           getpeername(fd, &far.any, &far.length) == 0 &&
           ct_addr_is_same_host(&near, &far);
}

int ct_tcp_look(int fd, struct ct_tcp_view *out)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    int unsent = 0;
    int unread = 0;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0 ||
        ioctl(fd, SIOCOUTQ, &unsent) < 0 || ioctl(fd, SIOCINQ, &unread) < 0)
        return -errno;
    *out = (struct ct_tcp_view){
        .is_open = info.tcpi_state == TCP_ESTABLISHED,
        .is_acknowledged = unsent == 0,
        .has_unread = unread > 0,
        .quiet_ms = info.tcpi_last_data_recv,
        .rtt_ms = ((uint64_t)info.tcpi_rtt + 4 * (uint64_t)info.tcpi_rttvar) / 1000 + 1,
    };
    return 0;
}

static bool has_bbr(int fd)
{
    char name[16] = ""; /* the kernel's limit */
    socklen_t length = sizeof name;

    return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 &&
           strcmp(name, "bbr") == 0;
}

/* reno is in every kernel, and needs no privilege. */
void ct_tcp_leave_bbr(int fd)
{
    if (has_bbr(fd))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
}

/* Asked once. Without a descriptor: no, and the next time again. */
static bool is_bbr_usual(void)
{
    static _Atomic int known; /* 1 no, 2 yes */
    const int usual = known ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (usual >= 0) {
        known = has_bbr(usual) ? 2 : 1;
        close(usual);
    }
    return known == 2;
}

void ct_tcp_return_to_bbr(int fd)
{
    if (is_bbr_usual())
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "bbr", strlen("bbr"));
}
