/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/peer_uid.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/net/nic.h"

struct answer {
    uid_t uid;
    unsigned long inode;
};

struct request {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

union reply {
    struct nlmsghdr head;
    char bytes[4096]; /* room for attributes that were not asked for */
};

/* Writes the address as in the kernel's table; returns its family. IPv4-mapped IPv6 is IPv4. */
static int write_addr(__be32 dst[4], const struct ct_addr *addr)
{
    const struct in6_addr *v6 = &addr->v6.sin6_addr;

    memset(dst, 0, 4 * sizeof *dst);
    if (addr->any.sa_family == AF_INET)
        dst[0] = addr->v4.sin_addr.s_addr;
    else if (IN6_IS_ADDR_V4MAPPED(v6))
        memcpy(dst, v6->s6_addr + 12, 4);
    else
        memcpy(dst, v6->s6_addr, sizeof *v6);
    return addr->any.sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(v6) ? AF_INET
                                                                      : AF_INET6;
}

static void fill(struct request *request, const struct ct_addr *remote,
                 const struct ct_addr *local)
{
    struct inet_diag_req_v2 *body = &request->body;

    *request = (struct request){.head = {.nlmsg_len = sizeof *request,
                                         .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                         .nlmsg_flags = NLM_F_REQUEST}};
    body->sdiag_family = (__u8)write_addr(body->id.idiag_src, remote);
    (void)write_addr(body->id.idiag_dst, local); /* both have one family */
    body->sdiag_protocol = IPPROTO_TCP;
    body->idiag_states = ~0u;
    body->id.idiag_sport = htons((uint16_t)ct_addr_port(remote));
    body->id.idiag_dport = htons((uint16_t)ct_addr_port(local));
    body->id.idiag_cookie[0] = body->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (body->sdiag_family == AF_INET6)
        body->id.idiag_if = remote->v6.sin6_scope_id;
}

/* Without such a connection the kernel answers with the listener at that port. A socket that its
 * process has closed belongs to root. */
static int read_reply(struct answer *out, union reply *reply, ssize_t length,
                      const struct request *request)
{
    const struct inet_diag_msg *found = NLMSG_DATA(&reply->head);
    const struct nlmsgerr *error = NLMSG_DATA(&reply->head);

    if (length < (ssize_t)NLMSG_LENGTH(sizeof *error) ||
        reply->head.nlmsg_len > (size_t)length)
        return -EPROTO;
    if (reply->head.nlmsg_type == NLMSG_ERROR)
        return error->error < 0 ? error->error : -EPROTO;
    if (length < (ssize_t)NLMSG_LENGTH(sizeof *found))
        return -EPROTO;
    if (found->idiag_state != TCP_ESTABLISHED ||
        found->id.idiag_dport != request->body.id.idiag_dport)
        return -ENOENT;
    *out = (struct answer){found->idiag_uid, found->idiag_inode};
    return 0;
}

static int ask(struct answer *out, const struct ct_addr *remote,
               const struct ct_addr *local)
{
    struct request request;
    union reply reply;
    ssize_t n;
    int rc;
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
                          NETLINK_SOCK_DIAG);

    if (fd < 0)
        return -errno;
    fill(&request, remote, local);
    if (send(fd, &request, sizeof request, 0) < 0 ||
        (n = recv(fd, &reply, sizeof reply, 0)) < 0) /* ready when send() returns */
        rc = errno == ENOENT ? -EPROTO : -errno;
    else
        rc = read_reply(out, &reply, n, &request);
    close(fd);
    return rc;
}

int peer_uid_find(uid_t *out, const struct ct_addr *remote, const struct ct_addr *local)
{
    struct answer answer;
    const int rc = ask(&answer, remote, local);

    if (rc == 0)
        *out = answer.uid;
    return rc;
}

unsigned long peer_inode_find(const struct ct_addr *remote, const struct ct_addr *local)
{
    struct answer answer;

    return ask(&answer, remote, local) == 0 ? answer.inode : 0;
}

/* Others can bring this about by many connections, and must not get in by it. */
static bool is_shortage(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ENOBUFS ||
           rc == -EAGAIN;
}

enum peer_user peer_user_of(const struct ct_addr *remote, const struct ct_addr *local)
{
    uid_t uid = 0;
    const int rc = peer_uid_find(&uid, remote, local);

    if (rc == -ENOENT)
        return ct_nic_is_mine(remote) ? PEER_USER_GONE : PEER_USER_OURS;
    if (is_shortage(rc))
        return PEER_USER_GONE;
    return rc < 0 || uid == getuid() || uid == 0 ? PEER_USER_OURS : PEER_USER_OTHER;
}
