/* SPDX-License-Identifier: Apache-2.0 */
/* What the rendezvous server of a run publishes of itself, in etcd or by PMI, for the other nodes:
 * its node's name for people, its port, its numeric addresses. Pure.
 *
 *     ctrun 1
 *     node3
 *     41234
 *     10.0.0.13
 *     fd00::13 */
#pragma once

#include "launcher/net/addresses.h"

enum {
    SERVER_RECORD_TEXT_MAX = 64 + CT_HOST_MAX + CT_ADDRS_MAX * CT_ADDR_TEXT_MAX
};

struct server_record {
    char name[CT_HOST_MAX];
    struct ct_addr addrs[CT_ADDRS_MAX]; /* with its port */
    size_t count;
};

/* This node as others should reach it: --local-addr or --net, else all addresses, loopback ones
 * only when there are no others. */
void server_record_fill(struct server_record *out, const char *name,
                        const struct addresses *addresses, uint16_t port);
/* The length, or -ENAMETOOLONG. */
int server_record_format(char *dst, size_t size, const struct server_record *record);
/* 0 or -EBADMSG; `text` is terminated. Addresses that this machine cannot read are skipped. */
int server_record_parse(struct server_record *out, const char *text, size_t length);
