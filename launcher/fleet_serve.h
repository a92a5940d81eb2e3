/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of a --hosts run: a server on a port that the kernel chooses and that is held
 * from then on, on the first host that was reached, under an address that the others know. */
#ifndef LAUNCHER_FLEET_SERVE_H
#define LAUNCHER_FLEET_SERVE_H

#include <stddef.h>

#include "launcher/fleet_job.h"

struct fleet_serve;

/* endpoint becomes "ADDRESS:PORT". 0, or a code. */
int fleet_serve_open(struct fleet_serve **out, const struct fleet_job *job,
                     uint32_t place, char *endpoint, size_t size,
                     struct ctrun_error *err);
void fleet_serve_close(struct fleet_serve *serve); /* NULL is fine */

#endif
