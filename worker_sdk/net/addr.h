/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: "host:port" text, numeric socket addresses, and which of them are ours.
 *
 * Whether a machine owns an address is decided by comparing addresses with those of its
 * interfaces, never by comparing names. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "worker_sdk/base/error.h"

enum {
    CT_HOST_MAX = 256,     /* a DNS name, NUL included (RFC 1035) */
    CT_ADDR_TEXT_MAX = 80, /* "[fe80::1%interface]:65535" */
    CT_ADDRS_MAX = 16,     /* addresses of one name or machine: more are ignored */
    CT_C10D_PORT = 29400,  /* of a c10d rendezvous, where none is given: torchrun's */
};

struct ct_endpoint {
    char host[CT_HOST_MAX]; /* as given, without brackets; empty: none was given */
    int port;               /* -1: none was given */
};

struct ct_addr {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t length;
};

/* Parses host, host:port, [v6], [v6]:port; blanks around it are dropped. 0, or -EINVAL. */
int ct_endpoint_parse(const char *text, struct ct_endpoint *out,
                      struct ctrun_error *err);
/* The same of what a person has typed: "::1:2379" is refused, which may be an address, or an address and a port, as
 * torchrun reads it. */
int ct_endpoint_parse_typed(const char *text, struct ct_endpoint *out,
                            struct ctrun_error *err);

/* Numeric text only ("10.0.0.1", "::1", "fe80::1%eth0"): asks no resolver. A v4 address has four
 * decimal numbers. 0 or -EINVAL. */
int ct_addr_parse(const char *host, int port, struct ct_addr *out);
/* True for localhost and the names below it, which mean loopback on every machine (RFC 6761). */
bool ct_addr_is_localhost(const char *host);
/* Resolves a name or number, blocking as getaddrinfo() does. Numbers need no resolver, nor does
 * localhost, which is always 127.0.0.1 and ::1, whatever /etc/hosts has. Returns the number of
 * addresses (at most max), or a CTRUN_E_* code. */
int ct_addr_resolve(const char *host, int port, struct ct_addr *out, int max,
                    struct ctrun_error *err);

bool ct_addr_is_loopback(const struct ct_addr *addr);
bool ct_addr_is_same_host(const struct ct_addr *a,
                          const struct ct_addr *b); /* port ignored */
int ct_addr_port(const struct ct_addr *addr);
void ct_addr_set_port(struct ct_addr *addr, int port);
/* "10.0.0.1" / "fe80::1%eth0"; v4-mapped v6 prints as v4. dst has CT_ADDR_TEXT_MAX bytes. */
void ct_addr_format_host(char *dst, const struct ct_addr *addr);
/* "10.0.0.1:80" / "[::1]:80". */
void ct_addr_format(char *dst, const struct ct_addr *addr);
bool ct_addr_is_link_local(const struct ct_addr *addr); /* v6 only */
/* True when both begin with the same `prefix` bits; v4-mapped is v4. */
bool ct_addr_in_network(const struct ct_addr *addr, const struct ct_addr *network,
                        unsigned prefix);
/* The address as 16 bytes, v4 mapped into v6, without scope and port: a key for tables. */
void ct_addr_key(uint8_t key[16], const struct ct_addr *addr);
