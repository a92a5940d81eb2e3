/* SPDX-License-Identifier: Apache-2.0 */
/* --port-range A-B: the ports that a firewall allows. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

struct ct_port_range {
    uint16_t first; /* 0: any port */
    uint16_t last;
};

/* "29400-29499" or one port; empty: any. 0, or CTRUN_E_USAGE. */
int ct_port_range_parse(const char *text, struct ct_port_range *out,
                        struct ctrun_error *err);
bool ct_port_range_has(const struct ct_port_range *range, int port);
int ct_port_range_count(const struct ct_port_range *range); /* 1 for "any": port 0 */
/* The i-th port to try, i from 0 to count - 1. The order depends on `seed`, so that processes that
 * start together do not all begin with the same port. */
uint16_t ct_port_range_at(const struct ct_port_range *range, uint32_t seed, int i);
