/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows about the other end of a TCP connection, even if the program there is
 * stopped. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ct_tcp_view {
    bool is_open;         /* neither end has closed or reset it */
    bool is_acknowledged; /* the other kernel has acknowledged all that was sent */
    bool has_unread;      /* received bytes are still unread */
    uint64_t quiet_ms;    /* since the last bytes came */
    uint64_t rtt_ms;      /* upper limit of a round trip, as the kernel has measured */
};

/* 0 or a negative errno (no TCP socket). */
int ct_tcp_look(int fd, struct ct_tcp_view *out);
/* True if both ends have the same address: the connection is within this machine. */
bool ct_tcp_is_same_host(int fd);

/* Over loopback bbr, the default of some hosts, takes twice the time of reno or cubic: it paces what
 * is sent by a rate that it measures too low while the two ends wait for each other. A connection
 * that began with bbr stays paced, so a socket leaves it before it connects or listens; an accepted
 * connection from elsewhere returns to it. Neither does anything if the default is another one. */
void ct_tcp_leave_bbr(int fd);
void ct_tcp_return_to_bbr(int fd);
