/* SPDX-License-Identifier: Apache-2.0 */
/* Flux tells a task its rank and its place on the node, and how many tasks and nodes there are
 * (flux-environment(7)). Only `flux getattr hostlist` has the names of the nodes. */
#include <errno.h>

#include "launcher/batch/batch.h"
#include "worker_sdk/base/str.h"

int batch_flux_read(struct batch_place *out, const struct batch_source *from,
                    struct ctrun_error *err)
{
    const char *job = batch_text(from, "FLUX_JOB_ID");
    int rank, size, nodes;
    int rc;

    if (!job || !batch_text(from, "FLUX_TASK_RANK"))
        return 0;
    out->system = "Flux";
    out->has_size = true;
    if ((rc = batch_number(from, "FLUX_TASK_RANK", &rank, err)) < 0 ||
        (rc = batch_number(from, "FLUX_TASK_LOCAL_ID", &out->local_id, err)) < 0 ||
        (rc = batch_number(from, "FLUX_JOB_SIZE", &size, err)) < 0 ||
        (rc = batch_number(from, "FLUX_JOB_NNODES", &nodes, err)) < 0)
        return rc;
    if (nodes < 1 || size % nodes != 0 || rank >= size ||
        rank % (size / nodes) != out->local_id)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Flux: task %d of %d is task %d of its node, of %d nodes: ctrun "
                       "needs the tasks of a node in a row and equally many on each "
                       "(flux run -N NODES --tasks-per-node=N)",
                       rank, size, out->local_id, nodes);
    for (int i = 0; i < nodes; i++)
        if ((rc = hostlist_add(&out->nodes, nodes == 1 ? "localhost" : "?")) < 0)
            return ct_fail(err, rc, "Flux: %d nodes: %s", nodes, strerror(-rc));
    if (batch_set_tasks(out, size / nodes) < 0)
        return ct_fail(err, -ENOMEM, "Flux: out of memory");
    out->node_id = rank / (size / nodes);
    (void)ct_format(out->job, sizeof out->job, "job %.100s", job);
    (void)ct_format(out->run_id, sizeof out->run_id, "flux-%.100s", job);
    return batch_check(out, batch_hash(job), err);
}
