/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1 for the workers of one round (--pmi): a socket each, served on the agent's loop. What is
 * said there is pmi_job.h's business. */
#ifndef AGENT_PMI_H
#define AGENT_PMI_H

#include <stdbool.h>

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/error.h"

struct loop;
struct pmi;

/* For `count` workers, ranks 0 to count - 1. on_abort: that rank calls itself failed with that exit
 * code, and waits to be killed. 0 or a negative errno. */
int pmi_open(struct pmi **out, struct loop *loop, int count,
             void (*on_abort)(void *context, int rank, int code), void *context);
void pmi_close(struct pmi *pmi); /* NULL is fine */
/* Tells worker `rank` by its environment which descriptor is its own: *fd, the caller's to close.
 * 0, -ENOMEM. */
int pmi_hand_out(struct pmi *pmi, int rank, struct ct_env *env, int *fd);

/* It has begun, but said no goodbye: after its end, others may wait for it. */
bool pmi_is_missed(const struct pmi *pmi, int rank);

#endif
