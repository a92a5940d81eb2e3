/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes of a Slurm step have not reached the fence of srun's PMI. A fence does not say who
 * has entered it, but srun keeps names for its tasks (PMI-2's name-publish and name-lookup, which
 * wait for nobody): a node that waits publishes its own, and looks for those of the others.
 *
 * All nodes look where they are few. Of many, only the first node that came looks for all, because
 * each name is a request to srun. Of a node with several tasks only the first publishes and looks; the others
 * do so if that one has not come. */
#pragma once

#include <stdbool.h>

#include "launcher/batch/hostlist.h"
#include "launcher/pmi/pmi_client.h"
#include "worker_sdk/wire/message.h"

enum {
    PMI_ABSENT_FEW_NODES = 64,
};

struct pmi_absent {
    const struct hostlist *nodes; /* of the step; borrowed */
    size_t node;                  /* ours */
    bool is_first;                /* of the tasks of our node */
    bool is_published,
        is_failed; /* is_failed: srun has not answered; nothing is asked again */
    bool *came;    /* nodes that were found; owned; NULL: none yet */
};

/* Publishes our name, once. A failure is kept. */
void pmi_absent_publish(struct pmi_absent *absent, struct pmi_client *client);
/* Looks for the nodes that were not found before, until the fence is passed. dst: a host list of
 * those that are not there, or why it is not known which are, in brackets. True: they are known. */
bool pmi_absent_find(struct pmi_absent *absent, struct pmi_client *client,
                     char dst[CT_MISSING_MAX]);
void pmi_absent_deinit(struct pmi_absent *absent);
