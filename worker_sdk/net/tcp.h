/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows of a TCP connection's other end, whatever the programs there do. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ct_tcp_view {
    bool is_open;         /* neither end has closed or reset it */
    bool is_acknowledged; /* the other kernel has all that was sent */
    bool has_unread;      /* bytes have come that nobody has read */
    uint64_t quiet_ms;    /* since the last bytes came */
    uint64_t rtt_ms; /* a round trip takes no longer, as far as the kernel has seen */
};

/* 0 or a negative errno (no TCP socket). */
int ct_tcp_look(int fd, struct ct_tcp_view *out);
/* True when both ends have the same address: it leads back to this machine. */
bool ct_tcp_is_same_host(int fd);
