/* SPDX-License-Identifier: Apache-2.0 */
/* Two passes: all connection ends must be known before an end in this node can be told from one
 * in another process. No copy of a descriptor is kept between the passes, since there may be
 * thousands; the second pass checks that the descriptor is still the same connection. */
#include "agent/process/peer_sockets.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/kernel.h"
#include "worker_sdk/base/str.h"

enum {
    FIRST_COUNT = 64
};

struct end {
    uint8_t host[16]; /* ct_addr_key() */
    uint16_t port;
};

struct peer_socket {
    pid_t pid;
    int fd; /* descriptor number in that process */
    int rank;
    bool is_cut;
    bool is_spared;   /* of a rank that has a GPU open: not shut down at either end */
    bool is_ended;    /* the other end has closed it: nothing to shut down */
    bool is_loopback; /* the other end has a loopback address */
    struct end local, peer;
};

struct peer_sockets {
    struct peer_socket *list;
    size_t count, max;
    int refused;
};

struct peer_sockets *peer_sockets_create(void)
{
    return ct_zalloc(sizeof(struct peer_sockets));
}

void peer_sockets_destroy(struct peer_sockets *sockets)
{
    if (!sockets)
        return;
    free(sockets->list);
    free(sockets);
}

static bool is_same(const struct end *a, const struct end *b)
{
    return a->port == b->port && memcmp(a->host, b->host, sizeof a->host) == 0;
}

/* ---- Collecting connections -------------------------------------------------------------- */

static void set_end(struct end *out, const struct ct_addr *addr)
{
    ct_addr_key(out->host, addr);
    out->port = (uint16_t)ct_addr_port(addr);
}

/* False: not a TCP connection. One that was reset has no other end any more. */
static bool look(struct peer_socket *out, int fd)
{
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    struct ct_addr local = {.length = sizeof local.v6};
    struct ct_addr peer = {.length = sizeof peer.v6};

    if (getsockname(fd, &local.any, &local.length) < 0 ||
        (local.any.sa_family != AF_INET && local.any.sa_family != AF_INET6) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0 ||
        ct_addr_port(&local) == 0 || info.tcpi_state == TCP_LISTEN)
        return false;
    set_end(&out->local, &local);
    out->is_ended = info.tcpi_state != TCP_ESTABLISHED;
    if (getpeername(fd, &peer.any, &peer.length) < 0)
        return out->is_ended;
    set_end(&out->peer, &peer);
    out->is_loopback = ct_addr_is_loopback(&peer);
    return true;
}

/* Room for one more; NULL: PEER_SOCKETS_MAX is reached, or out of memory. */
static struct peer_socket *make_room(struct peer_sockets *sockets)
{
    struct peer_socket *list;
    const size_t max = sockets->max ? sockets->max * 2 : FIRST_COUNT;

    if (sockets->count == sockets->max) {
        if (max > PEER_SOCKETS_MAX ||
            !(list = ct_realloc_array(sockets->list, max, sizeof *list)))
            return NULL;
        sockets->list = list;
        sockets->max = max;
    }
    list = &sockets->list[sockets->count];
    memset(list, 0, sizeof *list);
    return list;
}

static bool is_gpu(const char *target)
{
    /* nvidiactl alone is no GPU: a program only asked for GPUs */
    static const char nvidia[] = "/dev/nvidia";

    return (strncmp(target, nvidia, sizeof nvidia - 1) == 0 &&
            target[sizeof nvidia - 1] >= '0' && target[sizeof nvidia - 1] <= '9') ||
           strcmp(target, "/dev/kfd") == 0;
}

/* Adds one descriptor of the process. False: add no more of this process. */
static bool add_one(struct peer_sockets *sockets, int process, struct peer_socket found)
{
    struct peer_socket *socket = make_room(sockets);
    int copy;

    if (!socket)
        return false;
    if ((copy = ct_pidfd_getfd(process, found.fd)) < 0) {
        if (errno != EBADF && errno != ESRCH) /* closed; process gone */
            sockets->refused = errno;
        return errno == EBADF;
    }
    if (look(&found, copy)) {
        *socket = found;
        sockets->count++;
    }
    close(copy);
    return true;
}

/* NCCL's threads end the process when a connection breaks. A limit of the rate does no harm. */
static void spare_rank(struct peer_sockets *sockets, int rank)
{
    for (size_t i = 0; i < sockets->count; i++)
        if (sockets->list[i].rank == rank)
            sockets->list[i].is_spared = true;
}

void peer_sockets_add(struct peer_sockets *sockets, int rank, pid_t pid, bool is_cut)
{
    char path[64], target[32];
    const int process = ct_pidfd_open(pid);
    bool goes_on = process >= 0, has_gpu = false;
    DIR *files;

    if (process < 0 && errno != ESRCH)
        sockets->refused = errno;
    (void)ct_format(path, sizeof path, "/proc/%d/fd", (int)pid);
    files = goes_on ? opendir(path) : NULL;
    if (goes_on && !files && errno != ENOENT)
        sockets->refused = errno;
    while (files && goes_on) {
        const struct dirent *entry = readdir(files);
        ssize_t length;

        if (!entry)
            break;
        length = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        if (length < 0 && (errno == EACCES || errno == EPERM)) {
            sockets->refused = errno;
            break;
        }
        target[length > 0 ? length : 0] = '\0';
        has_gpu |= is_gpu(target);
        if (strncmp(target, "socket:", 7) == 0)
            goes_on = add_one(
                sockets, process,
                (struct peer_socket){.pid = pid,
                                     .fd = (int)strtol(entry->d_name, NULL, 10),
                                     .rank = rank,
                                     .is_cut = is_cut});
    }
    if (has_gpu)
        spare_rank(sockets, rank);
    if (files)
        closedir(files);
    if (process >= 0)
        close(process);
}

int peer_sockets_count(const struct peer_sockets *sockets, uint16_t port)
{
    int count = 0;

    for (size_t i = 0; i < sockets->count; i++)
        count += sockets->list[i].peer.port == port && !sockets->list[i].is_ended;
    return count == 0 ? -sockets->refused : count;
}

/* ---- Shutting down, limiting --------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const struct peer_socket *one = a, *other = b;
    const int order = memcmp(one->local.host, other->local.host,
                             sizeof one->local.host);

    return order ? order : (int)one->local.port - (int)other->local.port;
}

/* Which process of this node holds the other end: 1: another rank; 0: this rank itself, or one that is
 * spared; -1: none that we know. The list is sorted. */
static int find_holder(const struct peer_sockets *sockets,
                       const struct peer_socket *socket, bool spares)
{
    const struct peer_socket key = {.local = socket->peer};
    const struct peer_socket *found = bsearch(&key, sockets->list, sockets->count,
                                              sizeof key, compare);
    const struct peer_socket *end = sockets->list + sockets->count;
    int holder = -1;

    while (found && found > sockets->list && is_same(&found[-1].local, &socket->peer))
        found--; /* accepted ones share the listener's port */
    for (; found && found < end && is_same(&found->local, &socket->peer); found++)
        if (is_same(&found->peer, &socket->local)) {
            if (found->rank == socket->rank || (spares && found->is_spared))
                return 0;
            holder = 1;
        }
    return holder;
}

static bool is_listed(const uint8_t (*list)[16], size_t count, const uint8_t key[16])
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(list[i], key, sizeof list[i]) == 0)
            return true;
    return false;
}

static bool is_between_ranks(const struct peer_sockets *sockets,
                             const struct peer_socket *socket,
                             const struct peer_sockets_job *job, bool spares)
{
    const int holder = find_holder(sockets, socket, spares);

    if (socket->local.port == job->store_port || socket->peer.port == job->store_port)
        return false;
    if (holder >= 0)
        return holder > 0;
    return !socket->is_loopback &&
           memcmp(socket->local.host, socket->peer.host, sizeof socket->peer.host) !=
               0 &&
           !is_listed(job->own, job->own_count, socket->peer.host) &&
           is_listed(job->hosts, job->host_count, socket->peer.host);
}

static bool is_to_lost_store(const struct peer_socket *socket,
                             const struct peer_sockets_job *job)
{
    return job->lost_port && socket->peer.port == job->lost_port &&
           memcmp(socket->peer.host, job->lost_host, sizeof socket->peer.host) == 0;
}

/* rate NULL: shuts it down; 0: without a limit. As shutdown(2). */
static int act_on(int fd, const uint32_t *rate)
{
    const uint32_t max = rate && *rate ? *rate
                                       : UINT32_MAX; /* for the kernel: no limit */

    return rate ? setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &max, sizeof max)
                : shutdown(fd, SHUT_RDWR);
}

/* True when it has been done. */
static bool act(const struct peer_socket *socket, const uint32_t *rate)
{
    struct peer_socket now = {0};
    const int process = ct_pidfd_open(socket->pid);
    const int copy = process < 0 ? -1 : ct_pidfd_getfd(process, socket->fd);
    const bool is_done = copy >= 0 && look(&now, copy) &&
                         is_same(&now.local, &socket->local) &&
                         is_same(&now.peer, &socket->peer) && act_on(copy, rate) == 0;

    if (copy >= 0)
        close(copy);
    if (process >= 0)
        close(process);
    return is_done;
}

static struct peer_sockets_result act_on_all(struct peer_sockets *sockets,
                                             const struct peer_sockets_job *job,
                                             const uint32_t *rate)
{
    struct peer_sockets_result result = {.refused = sockets->refused};
    const bool cuts = !rate;

    if (sockets->count > 0)
        qsort(sockets->list, sockets->count, sizeof *sockets->list, compare);
    for (size_t i = 0; i < sockets->count; i++) {
        struct peer_socket *socket = &sockets->list[i];

        if (!socket->is_cut || (cuts && socket->is_spared))
            continue;
        if (socket->peer.port == job->store_port)
            result.store++;
        else if (socket->is_ended)
            result.ended++;
        else if (is_between_ranks(sockets, socket, job, cuts) ||
                 (cuts && is_to_lost_store(socket, job)))
            result.cut += act(socket, rate);
    }
    return result;
}

struct peer_sockets_result peer_sockets_cut(struct peer_sockets *sockets,
                                            const struct peer_sockets_job *job)
{
    return act_on_all(sockets, job, NULL);
}

struct peer_sockets_result peer_sockets_throttle(struct peer_sockets *sockets,
                                                 const struct peer_sockets_job *job,
                                                 uint32_t rate)
{
    return act_on_all(sockets, job, &rate);
}
