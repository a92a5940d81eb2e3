/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of a --hosts run: a server on the first host that is READY. The kernel chooses the
 * port, which stays open from then on; the address is one that other hosts can reach. */
#pragma once

#include <stddef.h>

#include "launcher/ssh/ssh_job.h"

struct ssh_serve;

/* endpoint becomes "ADDRESS:PORT". 0, or a code. */
int ssh_serve_open(struct ssh_serve **out, const struct ssh_job *job, uint32_t place,
                   char *endpoint, size_t size, struct ctrun_error *err);
void ssh_serve_close(struct ssh_serve *serve); /* NULL is fine */
