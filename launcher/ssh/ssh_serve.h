/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of a --hosts run: a server on a port that the kernel chooses and that is held
 * from then on, on the first host that was reached, under an address that the others know. */
#pragma once

#include <stddef.h>

#include "launcher/ssh/ssh_job.h"

struct ssh_serve;

/* endpoint becomes "ADDRESS:PORT". 0, or a code. */
int ssh_serve_open(struct ssh_serve **out, const struct ssh_job *job, uint32_t place,
                   char *endpoint, size_t size, struct ctrun_error *err);
void ssh_serve_close(struct ssh_serve *serve); /* NULL is fine */
