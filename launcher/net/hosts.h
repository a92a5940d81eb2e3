/* SPDX-License-Identifier: Apache-2.0 */
/* Who hosts the rendezvous: the endpoint's addresses, and whether one of them is ours.
 *
 * Addresses are compared with those of this machine's interfaces, never names with
 * names. A numeric endpoint and a run on one node ask no resolver. A name that does not
 * resolve yet (a headless service whose first pod is starting) is asked again until the
 * deadline. */
#ifndef LAUNCHER_NET_HOSTS_H
#define LAUNCHER_NET_HOSTS_H

#include "launcher/config/config.h"
#include "launcher/report/messages.h"

struct hosts {
    struct ct_addr addrs[CT_ADDRS_MAX]; /* of the endpoint, with its port */
    size_t count;
    bool is_mine;     /* one of them belongs to this machine */
    bool is_loopback; /* all of them are loopback: one machine only */
};

/* 0, CTRUN_E_DNS. */
int hosts_resolve(struct hosts *out, const struct config *config,
                  struct ctrun_error *err);

/* The same of addresses that are known. */
void hosts_set(struct hosts *out, const struct ct_addr *addrs, size_t count);

enum hosts_role {
    HOSTS_CLIENT,
    HOSTS_SERVE_OR_JOIN, /* serve; when a ctrun has the port already, be its client */
    HOSTS_SERVE,         /* serve, or fail */
};
enum hosts_role hosts_role(const struct hosts *hosts, const struct config *config);

/* Sets the port of all addresses, once it is known. */
void hosts_set_port(struct hosts *hosts, uint16_t port);

/* True when a ctrun server answers at one of those addresses that are ours, within two seconds
 * each. Where nobody listens it asks again, for two seconds: a port that is taken is bound before
 * it listens. Joins nothing. */
bool hosts_find_ctrun(const struct hosts *hosts);

/* E_PORT_BUSY; `owner` is "pid 4242 (python3 train.py)", NULL when hidden from this
 * user. Asks who has the port: blocks for 0.3 s an address at most. */
void hosts_explain_busy(struct messages_block *out, const struct hosts *hosts,
                        const struct config *config, const char *owner);
/* E_UNREACHABLE, E_NO_HOST or E_DNS: what was asked for, what this node has. */
void hosts_explain_unreachable(struct messages_block *out, const struct hosts *hosts,
                               const struct config *config,
                               const struct ctrun_error *why);
/* "10.1.0.1 (eth0), 10.3.0.1 (ib0), 127.0.0.1 (lo)" */
void hosts_format_own(char *dst, size_t size);
/* One line while waiting when the endpoint is loopback and others may be elsewhere; 0:
 * none. */
int hosts_format_loopback_hint(char *dst, size_t size, const struct hosts *hosts,
                               const struct config *config);

#endif
