/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/mesh_links.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host/mesh_addr.h"
#include "worker_sdk/net/tcp.h"

enum {
    GREETING_MAGIC = 0x31736d63, /* "cms1" */
    GREETING_BYTES = 24,
    /* arrivals without a greeting; the oldest is dropped for a new one */
    ARRIVALS_MAX = 128,
    ARRIVAL_MS = 5000,   /* limit for a greeting to arrive */
    CANDIDATE_MS = 2000, /* limit for one address to answer, if there are others */
    PASS_PAUSE_MS = 50,  /* pause after all addresses failed */
    REFUSALS_MAX = 10,   /* passes with only refusals: nobody listens any more */
    /* 20 s: slower than the launcher, which declares a silent node lost after 5 s and ends us with
     * the true cause. A worker that ended first would count as the cause. */
    KEEPALIVE_IDLE_S = 5,
    KEEPALIVE_INTERVAL_S = 5,
    KEEPALIVE_PROBES = 3,
    LINKS_A_MEMBER = 2,
};

enum link_state {
    LINK_WAITING,
    LINK_CONNECTING,
    LINK_GREETED,
    LINK_UP
};

/* A connection that we make or expect: index 2 * member + (1 if control). */
struct link {
    enum link_state state;
    int fd;
    int candidate; /* index into order: the address being tried */
    int order[CT_ADDRS_MAX];
    int order_count;
    bool all_refused; /* all addresses so far in this pass */
    int refusals;     /* passes in which all refused */
    uint64_t due_ms;  /* end of this attempt, or start of the next pass */
};

/* An accepted connection that has not greeted yet. */
struct arrival {
    int fd;
    unsigned char greeting[GREETING_BYTES];
    size_t length;
    uint64_t due_ms;
};

/* Exists while the group is opened, on one thread. A descriptor belongs to a link or to an arrival,
 * never to both; settle() moves those of links to the mesh, also half-open ones after a failure,
 * and ct_mesh_close() closes them. */
struct opening {
    const struct ct_mesh_setup *setup;
    struct link *links;
    struct arrival arrivals[ARRIVALS_MAX];
    int arrival_count;
    struct pollfd *polls;
    int last_errno; /* of the last failed attempt; for the message */
};

static void set_int(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value); /* works without it, too */
}

/* ---- Greetings -------------------------------------------------------------------------- */

/* half: 0 is sent by the connecting side, 1 by the accepting side. */
static void write_greeting(unsigned char *dst, const unsigned char *cookie, int half,
                           int from, int to, int kind)
{
    struct ct_writer out;

    ct_writer_init(&out, dst, GREETING_BYTES);
    ct_write_u32(&out, GREETING_MAGIC);
    ct_write_raw(&out, cookie + half * (CT_COOKIE_BYTES / 2), CT_COOKIE_BYTES / 2);
    ct_write_u32(&out, (uint32_t)from);
    ct_write_u32(&out, (uint32_t)to);
    ct_write_u32(&out, (uint32_t)kind);
}

/* Compares all bytes, so that the time taken does not tell another program how much of the cookie
 * it has guessed. */
static bool is_greeting(const unsigned char *got, const unsigned char *want)
{
    unsigned char difference = 0;

    for (int i = 0; i < GREETING_BYTES; i++)
        difference |= got[i] ^ want[i];
    return difference == 0;
}

static void tune(int fd, bool is_control)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (!is_control)
        return;
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

static bool shares_loopback(const struct opening *opening, int index)
{
    const struct ct_peer *peers = opening->setup->peers;

    return peers[index / LINKS_A_MEMBER].net_id == peers[opening->setup->me].net_id;
}

/* The connection counts from now on: both greetings were right. */
static void link_up(struct opening *opening, int index)
{
    struct link *link = &opening->links[index];

    link->state = LINK_UP;
    tune(link->fd, index % LINKS_A_MEMBER);
}

/* ---- The side that connects ------------------------------------------------------------- */

static void link_retry(struct link *link, int why)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->state = LINK_WAITING;
    if (why != ECONNREFUSED)
        link->all_refused = false;
    link->due_ms = 0;
    if (++link->candidate < link->order_count)
        return;
    link->refusals = link->all_refused ? link->refusals + 1 : 0;
    link->candidate = 0;
    link->all_refused = true;
    link->due_ms = ct_deadline_ms(PASS_PAUSE_MS);
}

static void link_greet(struct opening *opening, int index)
{
    const struct ct_mesh_setup *setup = opening->setup;
    struct link *link = &opening->links[index];
    unsigned char greeting[GREETING_BYTES];

    write_greeting(greeting, setup->cookie, 0, setup->me, index / LINKS_A_MEMBER,
                   index % LINKS_A_MEMBER);
    /* 24 bytes fit into the empty buffer of a new connection: fewer sent bytes mean a broken
     * connection. */
    if (send(link->fd, greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) {
        link_retry(link, opening->last_errno = errno);
        return;
    }
    link->state = LINK_GREETED;
}

static void link_connect(struct opening *opening, int index)
{
    const struct ct_mesh_setup *setup = opening->setup;
    struct link *link = &opening->links[index];
    const struct ct_addr *addr =
        &setup->peers[index / LINKS_A_MEMBER].addrs[link->order[link->candidate]];

    link->due_ms = ct_deadline_ms(link->order_count > 1 ? CANDIDATE_MS : UINT64_MAX);
    link->fd = socket(addr->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                      0);
    if (link->fd < 0) {
        link_retry(link, opening->last_errno = errno);
        return;
    }
    link->state = LINK_CONNECTING;
    if (shares_loopback(opening, index))
        ct_tcp_leave_bbr(link->fd);
    if (connect(link->fd, &addr->any, addr->length) < 0 && errno != EINPROGRESS)
        link_retry(link, opening->last_errno = errno);
}

static void link_on_ready(struct opening *opening, int index)
{
    const struct ct_mesh_setup *setup = opening->setup;
    struct link *link = &opening->links[index];
    unsigned char got[GREETING_BYTES];
    unsigned char want[GREETING_BYTES];
    socklen_t size = sizeof(int);
    int failure = 0;
    ssize_t n;

    if (link->state == LINK_CONNECTING) {
        (void)getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
        if (failure)
            link_retry(link, opening->last_errno = failure);
        else
            link_greet(opening, index);
        return;
    }
    /* Peeked at until the greeting is complete: bytes behind it are the first data of the group and
     * stay in the socket. */
    n = recv(link->fd, got, sizeof got, MSG_PEEK);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        link_retry(link, opening->last_errno = n < 0 ? errno : ECONNRESET);
        return;
    }
    if (n < GREETING_BYTES)
        return; /* wait for the rest, at most until due_ms */
    write_greeting(want, setup->cookie, 1, index / LINKS_A_MEMBER, setup->me,
                   index % LINKS_A_MEMBER);
    if (recv(link->fd, got, sizeof got, 0) == sizeof got && is_greeting(got, want))
        link_up(opening, index);
    else
        link_retry(link, opening->last_errno = EPROTO);
}

/* ---- The side that accepts -------------------------------------------------------------- */

/* The last arrival moves into the free place: a loop over arrivals must go backwards. */
static void drop_arrival(struct opening *opening, int i)
{
    opening->arrivals[i] = opening->arrivals[--opening->arrival_count];
}

/* The link that a complete greeting belongs to, or -1. */
static int link_of_greeting(const struct opening *opening,
                            const unsigned char *greeting)
{
    const struct ct_mesh_setup *setup = opening->setup;
    unsigned char want[GREETING_BYTES];
    struct ct_reader in;
    uint32_t from, kind;
    int index;

    ct_reader_init(&in, greeting + 12, GREETING_BYTES - 12);
    from = ct_read_u32(&in);
    (void)ct_read_u32(&in);
    kind = ct_read_u32(&in);
    /* We connect to lower members, so they never connect to us; the index is checked before it is
     * used. */
    if (from >= (uint32_t)setup->size || (int)from <= setup->me ||
        kind >= LINKS_A_MEMBER)
        return -1;
    write_greeting(want, setup->cookie, 0, (int)from, setup->me, (int)kind);
    index = (int)from * LINKS_A_MEMBER + (int)kind;
    return is_greeting(greeting, want) ? index : -1;
}

/* A peer that has greeted sends nothing before we answer; where it gave up and connected again, the
 * connection has ended. */
static bool is_given_up(const struct arrival *arrival)
{
    unsigned char byte;
    const ssize_t n = recv(arrival->fd, &byte, 1, MSG_PEEK);

    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* True when the arrival is done: its descriptor belongs to a link now, or is closed. */
static bool arrival_on_ready(struct opening *opening, struct arrival *arrival)
{
    const struct ct_mesh_setup *setup = opening->setup;
    unsigned char answer[GREETING_BYTES];
    struct link *link;
    int index;
    ssize_t n = recv(arrival->fd, arrival->greeting + arrival->length,
                     GREETING_BYTES - arrival->length, 0);

    if (n < 0 && errno == EAGAIN)
        return false;
    arrival->length += n > 0 ? (size_t)n : 0;
    if (n > 0 && arrival->length < GREETING_BYTES)
        return false;
    index = n > 0 ? link_of_greeting(opening, arrival->greeting) : -1;
    /* After a pause of ours all attempts of a peer are here, and we may see the last one first. */
    if (index < 0 || (opening->links[index].fd >= 0 && is_given_up(arrival))) {
        close(arrival->fd);
        return true;
    }
    link = &opening->links[index];
    if (link->fd >= 0)
        close(link->fd); /* the peer gave up its first attempt and connected again */
    link->fd = arrival->fd;
    if (!shares_loopback(opening, index))
        ct_tcp_return_to_bbr(link->fd); /* the listener has left it */
    write_greeting(answer, setup->cookie, 1, setup->me, index / LINKS_A_MEMBER,
                   index % LINKS_A_MEMBER);
    (void)send(link->fd, answer, sizeof answer,
               MSG_NOSIGNAL); /* on failure the peer connects again */
    link_up(opening, index);
    return true;
}

/* Drops the oldest arrival: it had the most time to greet, and a peer greets at once. */
static void make_room(struct opening *opening)
{
    int oldest = 0;

    for (int i = 1; i < opening->arrival_count; i++)
        if (opening->arrivals[i].due_ms < opening->arrivals[oldest].due_ms)
            oldest = i;
    if (!arrival_on_ready(opening, &opening->arrivals[oldest]))
        close(opening->arrivals[oldest].fd);
    drop_arrival(opening, oldest);
}

/* Accepts some waiting connections; the others after the greetings that have arrived. */
static void accept_arrivals(struct opening *opening)
{
    for (int i = 0; i < ARRIVALS_MAX / 2; i++) {
        int fd = accept4(opening->setup->listener, NULL, NULL,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (ct_is_short(-errno))
                opening->last_errno = errno;
            return;
        }
        if (ct_is_short(-opening->last_errno))
            opening->last_errno = 0; /* there is enough again */
        if (opening->arrival_count == ARRIVALS_MAX)
            make_room(opening);
        opening->arrivals[opening->arrival_count++] = (struct arrival){
            .fd = fd, .due_ms = ct_deadline_ms(ARRIVAL_MS)};
    }
}

/* ---- Opening ---------------------------------------------------------------------------- */

static int link_count(const struct opening *opening)
{
    return opening->setup->size * LINKS_A_MEMBER;
}

static bool all_up(const struct opening *opening)
{
    for (int i = 0; i < link_count(opening); i++)
        if (i / LINKS_A_MEMBER != opening->setup->me &&
            opening->links[i].state != LINK_UP)
            return false;
    return true;
}

static int fail_opening(const struct opening *opening, struct ctrun_error *err)
{
    const struct ct_mesh_setup *setup = opening->setup;
    char names[400] = "";
    size_t used = 0;

    for (int i = 0; i < setup->size; i++) {
        const struct link *link = &opening->links[i * LINKS_A_MEMBER];
        char who[CT_PEER_TEXT_MAX];
        char addr[CT_ADDR_TEXT_MAX] = "";
        int n;
        if (i == setup->me || (link[0].state == LINK_UP && link[1].state == LINK_UP))
            continue;
        ct_peer_format(who, &setup->peers[i]);
        if (link->order_count)
            ct_addr_format(addr, &setup->peers[i].addrs[link->order[0]]);
        n = ct_format(names + used, sizeof names - used, "%s%s%s%s", used ? ", " : "",
                      who, *addr ? " at " : "", addr);
        if (n < 0)
            break;
        used += (size_t)n;
    }
    return ct_fail(
        err, ct_is_short(-opening->last_errno) ? -opening->last_errno : CTRUN_E_TIMEOUT,
        "open group: no connection in time with %s%s%s", names,
        opening->last_errno ? ": " : "",
        opening->last_errno ? strerror(opening->last_errno) : "");
}

/* Continues all links whose due_ms has passed. */
static int start_due_links(struct opening *opening, struct ctrun_error *err)
{
    uint64_t now_ms = ct_now_ms();

    for (int i = 0; i < opening->setup->me * LINKS_A_MEMBER; i++) {
        struct link *link = &opening->links[i];
        if (link->state == LINK_UP || now_ms < link->due_ms)
            continue;
        /* The answer may be there, if this process was stopped meanwhile: the peer uses this
         * connection then, and perhaps listens no more. */
        if (link->state == LINK_GREETED)
            link_on_ready(opening, i);
        if (link->state == LINK_UP)
            continue;
        if (link->state != LINK_WAITING)
            link_retry(link, opening->last_errno = ETIMEDOUT);
        if (link->refusals >= REFUSALS_MAX) {
            char who[CT_PEER_TEXT_MAX];
            ct_peer_format(who, &opening->setup->peers[i / LINKS_A_MEMBER]);
            return ct_fail(err, CTRUN_E_PEER_LOST,
                           "open group: %s refused %d connections in a row: it has "
                           "ended, or has given up the group",
                           who, link->refusals);
        }
        if (link->state == LINK_WAITING && now_ms >= link->due_ms)
            link_connect(opening, i);
    }
    return 0;
}

/* Every link has its entry, -1 if nothing is awaited, so that serve() finds each by index. */
static int collect_polls(struct opening *opening)
{
    int n = 0;

    opening->polls[n++] = (struct pollfd){.fd = opening->setup->listener,
                                          .events = POLLIN};
    for (int i = 0; i < link_count(opening); i++) {
        const struct link *link = &opening->links[i];
        bool is_pending = link->state == LINK_CONNECTING || link->state == LINK_GREETED;
        opening->polls[n++] = (struct pollfd){
            .fd = is_pending ? link->fd : -1,
            .events = link->state == LINK_CONNECTING ? POLLOUT : POLLIN};
    }
    for (int i = 0; i < opening->arrival_count; i++)
        opening->polls[n++] = (struct pollfd){.fd = opening->arrivals[i].fd,
                                              .events = POLLIN};
    return n;
}

/* Serves arrivals before the listener, because accept_arrivals() adds arrivals that have no entry
 * in polls[]. */
static void serve(struct opening *opening)
{
    int arrivals_at = 1 + link_count(opening);
    uint64_t now_ms = ct_now_ms();

    for (int i = opening->arrival_count - 1; i >= 0;
         i--) { /* backwards: drop moves the last */
        if (opening->polls[arrivals_at + i].revents) {
            if (arrival_on_ready(opening, &opening->arrivals[i]))
                drop_arrival(opening, i);
        } else if (now_ms >= opening->arrivals[i].due_ms) {
            close(opening->arrivals[i].fd);
            drop_arrival(opening, i);
        }
    }
    for (int i = 0; i < link_count(opening); i++)
        if (opening->polls[1 + i].revents)
            link_on_ready(opening, i);
    if (opening->polls[0].revents)
        accept_arrivals(opening);
}

static int connect_all(struct opening *opening, struct ctrun_error *err)
{
    const struct ct_mesh_setup *setup = opening->setup;
    int rc = 0;

    while (rc == 0 && !all_up(opening)) {
        int n;
        if ((rc = start_due_links(opening, err)) < 0)
            break;
        n = collect_polls(opening);
        /* Waits in slices: in between, the watch (a lost node) and the deadline are checked. */
        if (poll(opening->polls, (nfds_t)n, CT_SLICE_MS) < 0 && errno != EINTR)
            return ct_fail(err, -errno, "open group: poll: %s", strerror(errno));
        serve(opening);
        if (setup->watch.check)
            rc = setup->watch.check(setup->watch.context, err);
        if (rc == 0 && ct_now_ms() >= setup->deadline_ms && !all_up(opening))
            rc = fail_opening(opening, err);
    }
    return rc;
}

/* Prepares the links: which members to connect to, and the order of their addresses. */
static int plan_links(struct opening *opening, struct ctrun_error *err)
{
    const struct ct_mesh_setup *setup = opening->setup;
    struct ifaddrs *local = NULL;
    int rc = 0;

    (void)getifaddrs(&local); /* without it no network is preferred */
    for (int i = 0; i < link_count(opening); i++) {
        struct link *link = &opening->links[i];
        *link = (struct link){.fd = -1, .all_refused = true};
        if (i / LINKS_A_MEMBER >= setup->me)
            continue;
        link->order_count = ct_mesh_addr_order(link->order, &setup->peers[setup->me],
                                               &setup->peers[i / LINKS_A_MEMBER],
                                               local);
        if (link->order_count == 0 && rc == 0) {
            char who[CT_PEER_TEXT_MAX];
            ct_peer_format(who, &setup->peers[i / LINKS_A_MEMBER]);
            rc = ct_fail(err, CTRUN_E_UNREACHABLE,
                         "open group: %s has no address that this host can reach", who);
        }
    }
    if (local)
        freeifaddrs(local);
    return rc;
}

/* Moves the sockets of links to the mesh; closes the rest of the opening. */
static void settle(struct ct_mesh *mesh, struct opening *opening)
{
    for (int i = 0; opening->links && i < link_count(opening); i++) {
        int fd = opening->links[i].fd;
        if (i % LINKS_A_MEMBER)
            mesh->control[i / LINKS_A_MEMBER] = fd;
        else
            mesh->data[i / LINKS_A_MEMBER] = fd;
    }
    for (int i = 0; i < opening->arrival_count; i++)
        close(opening->arrivals[i].fd);
    free(opening->links);
    free(opening->polls);
    free(opening);
}

int ct_mesh_links_open(struct ct_mesh *mesh, const struct ct_mesh_setup *setup,
                       struct ctrun_error *err)
{
    size_t size = (size_t)setup->size;
    struct opening *opening = ct_zalloc(sizeof *opening);
    int rc;

    if (opening) {
        opening->setup = setup;
        opening->links = ct_zalloc_array(size * LINKS_A_MEMBER, sizeof(struct link));
        opening->polls = ct_zalloc_array(1 + size * LINKS_A_MEMBER + ARRIVALS_MAX,
                                         sizeof(struct pollfd));
    }
    if (!opening || !opening->links || !opening->polls) {
        if (opening) {
            free(opening->links);
            free(opening->polls);
            free(opening);
        }
        return ct_fail(err, -ENOMEM, "open group: out of memory for %d members",
                       setup->size);
    }
    rc = plan_links(opening, err);
    if (rc == 0)
        rc = connect_all(opening, err);
    settle(mesh, opening);
    return rc;
}
