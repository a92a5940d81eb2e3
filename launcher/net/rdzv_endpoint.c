/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/net/rdzv_endpoint.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/net/dns_retry.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/client.h"
#include "worker_sdk/client/retry.h"
#include "worker_sdk/wire/frame.h"

enum {
    PROBE_MS = 2000,
    START_MS = 8000, /* longer, for a server that accepts and may still start */
    OWNER_MS = 300,  /* short: for one line of an error message */
    FREE_PORT_TRIES = 100,
};

/* Sets what follows from the first `count` addresses. */
static void derive(struct rdzv_endpoint *endpoint, size_t count)
{
    endpoint->count = count;
    endpoint->is_mine = false;
    endpoint->is_loopback = count > 0;
    for (size_t i = 0; i < count; i++) {
        endpoint->is_loopback &= ct_addr_is_loopback(&endpoint->addrs[i]);
        endpoint->is_mine |= ct_nic_is_mine(&endpoint->addrs[i]);
    }
}

/* Lists as many addresses as there is room for at each of these ports, sorted by port.
 * In place: the first port comes last, since its addresses are the ones read. */
static void expand_ports(struct rdzv_endpoint *endpoint, const uint16_t *ports,
                         int count)
{
    const size_t most = CT_ADDRS_MAX / (size_t)count;
    const size_t addr_count = endpoint->count < most ? endpoint->count : most;

    for (int p = count - 1; p >= 0; p--)
        for (size_t i = 0; i < addr_count; i++) {
            struct ct_addr *addr = &endpoint->addrs[(size_t)p * addr_count + i];

            *addr = endpoint->addrs[i];
            ct_addr_set_port(addr, ports[p]);
        }
    endpoint->count = addr_count * (size_t)count;
}

int rdzv_endpoint_resolve(struct rdzv_endpoint *out, const struct config *config,
                          struct ctrun_error *err)
{
    int count = config->rdzv.backend == CONFIG_ETCD
                    ? 0
                    : dns_retry_resolve(&config->rdzv.endpoint,
                                        config->rdzv.connect_timeout_ms, out->addrs,
                                        CT_ADDRS_MAX, err);

    derive(out, count > 0 ? (size_t)count : 0);
    if (count > 0 && config->rdzv.place_count > 1)
        expand_ports(out, config->rdzv.places, config->rdzv.place_count);
    return count < 0 ? count : 0;
}

void rdzv_endpoint_set(struct rdzv_endpoint *out, const struct ct_addr *addrs,
                       size_t count)
{
    if (count > CT_ADDRS_MAX)
        count = CT_ADDRS_MAX;
    memcpy(out->addrs, addrs, count * sizeof *addrs);
    derive(out, count);
}

enum rdzv_endpoint_role rdzv_endpoint_role(const struct rdzv_endpoint *endpoint,
                                           const struct config *config)
{
    if (config->rdzv.backend == CONFIG_LOCAL)
        return RDZV_ENDPOINT_SERVE;
    if (config->rdzv.backend == CONFIG_STATIC)
        return config->run.node_rank == 0 ? RDZV_ENDPOINT_SERVE : RDZV_ENDPOINT_CLIENT;
    switch (config->rdzv.is_host) {
    case CONFIG_HOST_YES: return RDZV_ENDPOINT_SERVE;
    case CONFIG_HOST_NO: return RDZV_ENDPOINT_CLIENT;
    case CONFIG_HOST_AUTO: break;
    }
    return endpoint->is_mine ? RDZV_ENDPOINT_SERVE_OR_JOIN : RDZV_ENDPOINT_CLIENT;
}

void rdzv_endpoint_set_port(struct rdzv_endpoint *endpoint, uint16_t port)
{
    for (size_t i = 0; i < endpoint->count; i++)
        ct_addr_set_port(&endpoint->addrs[i], port);
}

/* ---- Is a ctrun there ----------------------------------------------------------------- */

/* Sends a frame header with a version that does not exist: a ctrun server answers with an error
 * frame. 1: a ctrun; 0: something else; -ECONNREFUSED: nothing listens; -ETIMEDOUT: no answer;
 * -ECONNRESET: no answer this time, as of a server with too many connections. */
static int ask_for_ctrun(const struct ct_addr *addr, uint64_t limit_ms)
{
    const uint8_t question[CT_FRAME_HEADER_BYTES] = {CT_FRAME_MAGIC_0,
                                                     CT_FRAME_MAGIC_1};
    uint64_t deadline_ms = ct_deadline_ms(limit_ms);
    uint8_t answer[2];
    size_t got = 0;
    ssize_t n;
    int ready = 0;
    int fd = ct_client_dial(addr, deadline_ms);

    if (fd < 0)
        return fd == -ECONNREFUSED ? fd : 0;
    n = send(fd, question, sizeof question, MSG_NOSIGNAL);
    if (n == (ssize_t)sizeof question) {
        while (got < sizeof answer &&
               (ready = ct_client_poll(fd, POLLIN, deadline_ms)) > 0) {
            n = recv(fd, answer + got, sizeof answer - got, 0);
            if (n <= 0)
                break;
            got += (size_t)n;
        }
    }
    if (n < 0)
        ready = errno == EPIPE ? -ECONNRESET : -errno;
    close(fd);
    if (ready == -ETIMEDOUT || ready == -ECONNRESET)
        return ready;
    return got == sizeof answer && answer[0] == CT_FRAME_MAGIC_0 &&
           answer[1] == CT_FRAME_MAGIC_1;
}

/* 1: a ctrun answers; -ECONNREFUSED: none yet, nothing listens; -ETIMEDOUT, -ECONNRESET: none yet;
 * 0: none. */
static int find_ctrun(const struct rdzv_endpoint *endpoint, uint64_t limit_ms)
{
    int found = 0;

    for (size_t i = 0; i < endpoint->count && found <= 0; i++)
        if (ct_nic_is_mine(&endpoint->addrs[i])) {
            const int rc = ask_for_ctrun(&endpoint->addrs[i], limit_ms);

            found = rc ? rc : found;
        }
    return found;
}

int rdzv_endpoint_find_ctrun(const struct rdzv_endpoint *endpoint)
{
    struct ct_retry retry;
    int found;

    ct_retry_init(&retry, ct_deadline_ms(PROBE_MS));
    do /* the port may be bound, but not listening yet */
        found = find_ctrun(endpoint, PROBE_MS);
    while ((found == -ECONNREFUSED || found == -ECONNRESET) && ct_retry_pause(&retry));
    return found;
}

bool rdzv_endpoint_await_ctrun(const struct rdzv_endpoint *endpoint)
{
    messages_notice("port %d is taken by a program that does not answer: waiting up to "
                    "%d s more, because it may be a rendezvous server that starts",
                    ct_addr_port(&endpoint->addrs[0]), START_MS / 1000);
    return find_ctrun(endpoint, START_MS) > 0;
}

/* ---- Explanations -------------------------------------------------------------------- */

static void format_endpoint(char *dst, size_t size, const struct config *config)
{
    bool is_v6 = strchr(config->rdzv.endpoint.host, ':');

    (void)ct_format(dst, size, "%s%s%s:%d", is_v6 ? "[" : "",
                    config->rdzv.endpoint.host, is_v6 ? "]" : "",
                    config->rdzv.endpoint.port);
}

static void format_addrs(char *dst, size_t size, const struct ct_addr *addrs,
                         size_t count)
{
    char one[CT_ADDR_TEXT_MAX];

    *dst = '\0';
    for (size_t i = 0; i < count; i++) {
        ct_addr_format_host(one, &addrs[i]);
        (void)ct_append_item(dst, size, ", ", "%s", one);
    }
}

static bool is_free(int port)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port)};
    const int off = 0;
    bool is_bound;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) { /* IPv6 and IPv4 */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        is_bound = bind(fd, (struct sockaddr *)&any, sizeof any) == 0;
    } else {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        is_bound = fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4) == 0;
    }
    if (fd >= 0)
        close(fd);
    return is_bound;
}

/* The next port that is free on this machine now; 0: none within FREE_PORT_TRIES. */
static int find_free_port(int port)
{
    for (int next = port + 1; next <= port + FREE_PORT_TRIES && next <= UINT16_MAX;
         next++)
        if (is_free(next))
            return next;
    return 0;
}

void rdzv_endpoint_explain_busy(struct messages_block *out,
                                const struct rdzv_endpoint *endpoint,
                                const struct config *config, const char *owner,
                                bool is_ctrund)
{
    const int free_port = find_free_port(config->rdzv.endpoint.port);
    const bool is_static = config->rdzv.backend == CONFIG_STATIC;
    const bool has_ctrun = find_ctrun(endpoint, OWNER_MS) > 0;
    char hint[CT_HOST_MAX + 16] = "";

    messages_begin(out, CTRUN_E_PORT_BUSY, "port %d on %s is taken",
                   config->rdzv.endpoint.port, config->run.host);
    if (config->rdzv.place_count > 1)
        messages_add(out, "tried",
                     "this port and the other ports derived from the "
                     "job; all of them are taken");
    messages_add(out, "by", "%s", owner);
    if (has_ctrun)
        messages_add(
            out, "is it ours",
            "perhaps: a rendezvous server answers there, of another job or of this one "
            "(run '%s')",
            config->run.run_id);
    else
        messages_add(out, "is it ours", "no rendezvous server answers there");
    if (is_ctrund) {
        format_endpoint(hint, sizeof hint, config);
        messages_add(out, "do",
                     "to meet at that ctrund give --rdzv-backend=c10d "
                     "--rdzv-endpoint=%s --rdzv-conf=is_host=0%s",
                     hint,
                     is_static ? " in place of --node-rank and --master-addr" : "");
        return;
    }
    if (free_port > 0)
        (void)ct_format(hint, sizeof hint, "; %d is free now", free_port);
    if (config->run.nodes.max == 1)
        messages_add(out, "do", "leave the port out: one node chooses a free one%s",
                     hint);
    else
        messages_add(out, "do", "%suse another port on all nodes (%s)%s",
                     is_static && has_ctrun
                         ? "give each node of one job its own --node-rank; else "
                         : "",
                     is_static ? "--master-port" : "--rdzv-endpoint HOST:PORT", hint);
}

void rdzv_endpoint_format_own(char *dst, size_t size)
{
    struct ct_nic mine[CT_NICS_MAX];
    const int count = ct_nic_list(mine, CT_NICS_MAX);
    char addr[CT_ADDR_TEXT_MAX];

    (void)ct_copy(dst, size, count > 0 ? "" : "none");
    for (int i = 0; i < count; i++) {
        ct_addr_format_host(addr, &mine[i].addr);
        (void)ct_append_item(dst, size, ", ", "%s (%s)", addr,
                             mine[i].name); /* cut is fine */
    }
}

static void advise(struct messages_block *out, const struct rdzv_endpoint *endpoint,
                   const struct config *config, bool is_nobody)
{
    const bool is_static = config->rdzv.backend == CONFIG_STATIC;
    const char *host = config->rdzv.endpoint.host;

    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0)
        messages_add(out, "likely",
                     "%s is where a server listens on all addresses of its machine; to "
                     "reach it, name one of them",
                     host);
    else if (is_nobody)
        messages_add(out, "likely", "%s; or a firewall rejects the connection",
                     is_static
                         ? "node rank 0 was not started there, or its --node-rank "
                           "is another"
                         : "no ctrun listens there: not started yet, ended, or "
                           "started elsewhere");
    if (is_static)
        messages_add(
            out, "do",
            "start node rank 0 on the host of that address; check --node-rank");
    else if (endpoint->is_mine)
        messages_add(out, "do",
                     "this node has that address but may not serve: remove is_host=0, "
                     "or start ctrund there");
    else
        messages_add(out, "do", "%s, or use an address of one of the nodes",
                     is_nobody
                         ? "start ctrun (or ctrund) on the host that owns that address"
                         : "check that address, and the network and firewalls on the "
                           "way to it");
}

void rdzv_endpoint_explain_unreachable(struct messages_block *out,
                                       const struct rdzv_endpoint *endpoint,
                                       const struct config *config,
                                       const struct ctrun_error *why)
{
    const bool is_nobody = why->code == CTRUN_E_NO_HOST && !endpoint->is_mine;
    const int code = why->code == CTRUN_E_NO_HOST ? CTRUN_E_UNREACHABLE : why->code;
    char name[CT_HOST_MAX + 16];
    char text[512];

    format_endpoint(name, sizeof name, config);
    if (code == CTRUN_E_DNS)
        messages_begin(out, code,
                       "%s cannot resolve the host name '%s' of the rendezvous",
                       config->run.host, config->rdzv.endpoint.host);
    else if (is_nobody)
        messages_begin(out, CTRUN_E_NO_HOST, "no rendezvous accepts connections at %s",
                       name);
    else
        messages_begin(out, code,
                       code == -EXFULL ? "%s finds no room at the rendezvous at %s"
                                       : "%s cannot reach the rendezvous at %s",
                       config->run.host, name);
    messages_add(out, "last try", "%s", why->text);
    if (code == -EXFULL) {
        messages_add(out, "do",
                     "raise that limit, or start fewer nodes there at a time; a longer "
                     "wait: --rdzv-conf join_timeout=1200");
        return;
    }
    format_addrs(text, sizeof text, endpoint->addrs, endpoint->count);
    messages_add(out, "asked for", "%s  (here: %s)", name,
                 *text ? text : "the name is not resolved");
    rdzv_endpoint_format_own(text, sizeof text);
    messages_add(out, "this node", "%s, addresses %s", config->run.host, text);
    if (code == CTRUN_E_DNS)
        messages_add(out, "do",
                     "check how it is spelt, put it into /etc/hosts or DNS, or give "
                     "its address");
    else
        advise(out, endpoint, config, is_nobody);
}

int rdzv_endpoint_format_loopback_hint(char *dst, size_t size,
                                       const struct rdzv_endpoint *endpoint,
                                       const struct config *config)
{
    if (config->run.nodes.max == 1 || !endpoint->is_loopback)
        return 0;
    return ct_format(
        dst, size,
        "the rendezvous address '%s' is loopback: nodes on other machines cannot "
        "reach it",
        config->rdzv.endpoint.host);
}
