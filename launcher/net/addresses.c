/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/net/addresses.h"

#include <strings.h>

#include "launcher/report/messages.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

/* Such addresses come last, and count only on a machine that has no others. */
static bool is_useless(const struct ct_nic *nic)
{
    return nic->is_loopback || !nic->has_carrier;
}

static int list_nics(struct addresses *out, const struct config *config,
                     struct ctrun_error *err)
{
    char have[512];

    out->count = ct_net_list(&config->rdzv.net, out->list, CT_MESSAGE_ADDRS_MAX);
    while (out->count > 1 && config->rdzv.net.count == 0 &&
           is_useless(&out->list[out->count - 1]))
        out->count--;
    if (out->count < 0)
        return ct_fail(err, out->count, "the addresses of this node cannot be read: %s",
                       strerror(-out->count));
    if (out->count > 0 || config->rdzv.net.count == 0)
        return 0;
    rdzv_endpoint_format_own(have, sizeof have);
    return ct_fail(err, CTRUN_E_USAGE,
                   "--net=%s: %s has no such interface or address; it has %s",
                   config->rdzv.net_text, config->run.host, have);
}

/* A name of an address of this machine is replaced by the address: others may not know the name. */
static void take_local(struct addresses *out, const char *text, bool is_one_node)
{
    struct ct_addr found[CT_ADDRS_MAX];
    const int count = ct_addr_resolve(text, 0, found, CT_ADDRS_MAX, NULL);

    (void)ct_copy(out->local, sizeof out->local, text); /* same size */
    if (count == CTRUN_E_DNS)
        messages_warn(CTRUN_E_DNS,
                      "--local-addr=%s: this node cannot resolve that name; the other "
                      "nodes get the name",
                      text);
    for (int i = 0; i < count && !out->has_bind; i++)
        if (ct_nic_is_mine(&found[i])) {
            out->has_bind = true;
            out->bind = found[i];
            ct_addr_format_host(out->local, &found[i]);
        }
    if (is_one_node && count != CTRUN_E_DNS && !out->has_bind)
        messages_warn(
            0,
            "--local-addr=%s: no interface of this node has that address, and "
            "it is the MASTER_ADDR of the workers: leave it out if they wait "
            "for one another",
            text);
}

int addresses_resolve(struct addresses *out, const struct config *config,
                      struct ctrun_error *err)
{
    int rc;

    *out = (struct addresses){0};
    if (config->rdzv.backend == CONFIG_LOCAL) {
        struct addresses unused; /* one node needs none, but --net must not be wrong */

        if (config->rdzv.net.count > 0 && (rc = list_nics(&unused, config, err)) < 0)
            return rc;
        out->has_bind = true;
        (void)ct_addr_parse("127.0.0.1", 0, &out->bind); /* a number: cannot fail */
    } else if ((rc = list_nics(out, config, err)) < 0) {
        return rc;
    }
    if (*config->rdzv.local_addr) {
        out->has_bind = false; /* it may not be this machine's: a NAT's */
        take_local(out, config->rdzv.local_addr,
                   config->run.nodes.max == 1 && config->rdzv.backend != CONFIG_STATIC);
    } else if (config->rdzv.net.count > 0 && out->count > 0) {
        out->has_bind = true;
        out->bind = out->list[0].addr;
        ct_addr_format_host(out->local, &out->bind);
    }
    return 0;
}

void addresses_fill_join(const struct addresses *addresses, const struct config *config,
                         struct ct_join *join)
{
    (void)ct_copy(join->local_addr, sizeof join->local_addr, addresses->local);
    if (config->rdzv.backend == CONFIG_STATIC && config->run.node_rank == 0)
        (void)ct_copy(join->local_addr, sizeof join->local_addr,
                      config->rdzv.endpoint.host);
    for (int i = 0; i < addresses->count; i++)
        ct_addr_format_host(join->addrs[join->addr_count++], &addresses->list[i].addr);
}

/* ---- The endpoint ------------------------------------------------------------------------ */

static bool is_localhost(const char *host)
{
    return ct_addr_is_localhost(host) || ct_starts_with(host, "localhost.") ||
           strcasecmp(host, "ip6-localhost") == 0 ||
           strcasecmp(host, "ip6-loopback") == 0;
}

/* Loopback names have a v4 and a v6 address; clients try both, v4 works everywhere. */
static struct ct_addr choose_loopback(const struct rdzv_endpoint *endpoint)
{
    for (size_t i = 0; i < endpoint->count; i++)
        if (endpoint->addrs[i].any.sa_family == AF_INET)
            return endpoint->addrs[i];
    return endpoint->addrs[0];
}

struct ct_addr addresses_choose_bind(const struct rdzv_endpoint *endpoint,
                                     const struct config *config)
{
    struct ct_addr number;
    const bool is_number = ct_addr_parse(config->rdzv.endpoint.host, 0, &number) == 0;

    if (is_number && endpoint->is_mine)
        return endpoint->addrs[0];
    if (endpoint->is_loopback &&
        (is_localhost(config->rdzv.endpoint.host) || config->run.nodes.max == 1))
        return choose_loopback(endpoint);
    if (endpoint->is_loopback)
        ct_info("'%s' is loopback on this machine; serving at all of its addresses",
                config->rdzv.endpoint.host);
    number = (struct ct_addr){.v6.sin6_family = AF_INET6, .length = sizeof number.v6};
    ct_addr_set_port(&number, config->rdzv.endpoint.port);
    return number;
}

void addresses_narrow(struct addresses *out, const struct addresses *all,
                      const struct ct_addr *bound)
{
    const struct ct_addr any = {.v6.sin6_family = AF_INET6, .length = sizeof any.v6};

    *out = *all;
    if (ct_addr_is_same_host(bound, &any))
        return;
    out->has_bind = true;
    out->bind = *bound;
    ct_addr_format_host(out->local, bound);
}
