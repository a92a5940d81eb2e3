/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous endpoint: its addresses, whether one of them belongs to this machine, and so
 * whether this node serves the rendezvous.
 *
 * Addresses are compared with those of this machine's interfaces, never names with
 * names. A numeric endpoint and a run on one node need no name resolution. A name that does not
 * resolve yet (a headless service whose first pod is starting) is resolved again until the
 * deadline. */
#pragma once

#include "launcher/config/config.h"
#include "launcher/report/messages.h"

struct rdzv_endpoint {
    struct ct_addr addrs[CT_ADDRS_MAX]; /* of the endpoint, with its port */
    size_t count;
    bool is_mine;     /* one of them belongs to this machine */
    bool is_loopback; /* all of them are loopback: one machine only */
};

/* 0, CTRUN_E_DNS. */
int rdzv_endpoint_resolve(struct rdzv_endpoint *out, const struct config *config,
                          struct ctrun_error *err);

/* The same for addresses that are already known; resolves nothing. */
void rdzv_endpoint_set(struct rdzv_endpoint *out, const struct ct_addr *addrs,
                       size_t count);

enum rdzv_endpoint_role {
    RDZV_ENDPOINT_CLIENT,
    RDZV_ENDPOINT_SERVE_OR_JOIN, /* serve; if a ctrun listens there already, be its client */
    RDZV_ENDPOINT_SERVE,         /* serve, or fail */
};
enum rdzv_endpoint_role rdzv_endpoint_role(const struct rdzv_endpoint *endpoint,
                                           const struct config *config);

/* Sets the port of all addresses, once it is known. */
void rdzv_endpoint_set_port(struct rdzv_endpoint *endpoint, uint16_t port);

/* 1: a ctrun server answers at one of the addresses of this machine; 0: none; -ETIMEDOUT: a program
 * accepts and sends nothing; -ECONNREFUSED: nothing listens; -ECONNRESET: connections are reset.
 * Blocks for at most two seconds an address; a refused connection is tried again as long, because a
 * server binds its port before it listens, and so is one that is reset, because a server that has
 * too many connections may do that. Joins no run. */
int rdzv_endpoint_find_ctrun(const struct rdzv_endpoint *endpoint);
/* True when one answers within eight seconds. Prints a notice that it waits, and blocks. */
bool rdzv_endpoint_await_ctrun(const struct rdzv_endpoint *endpoint);

/* E_PORT_BUSY; `owner` is "pid 4242 (python3 train.py)", or says why it is not known; `is_ctrund`: it is known to be
 * one. Connects to the port: blocks for 0.3 s an address at most. */
void rdzv_endpoint_explain_busy(struct messages_block *out,
                                const struct rdzv_endpoint *endpoint,
                                const struct config *config, const char *owner,
                                bool is_ctrund);
/* E_UNREACHABLE, E_NO_HOST, E_DNS or -EXFULL: what was asked for, what this node has. */
void rdzv_endpoint_explain_unreachable(struct messages_block *out,
                                       const struct rdzv_endpoint *endpoint,
                                       const struct config *config,
                                       const struct ctrun_error *why);
/* "10.1.0.1 (eth0), 10.3.0.1 (ib0), 127.0.0.1 (lo)" */
void rdzv_endpoint_format_own(char *dst, size_t size);
/* One line while waiting when the endpoint is loopback and others may be elsewhere; 0:
 * none. */
int rdzv_endpoint_format_loopback_hint(char *dst, size_t size,
                                       const struct rdzv_endpoint *endpoint,
                                       const struct config *config);
