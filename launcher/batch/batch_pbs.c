/* SPDX-License-Identifier: Apache-2.0 */
/* OpenPBS, PBS Pro and Torque: what pbsdsh starts. One agent a node: a second task of a node is
 * refused, since their number is not known.
 *
 * Torque has PBS_NODENUM for the node and PBS_VNODENUM for the slot; in PBS Pro, which has no
 * PBS_VNODENUM, PBS_NODENUM is the line of the node file. The job script itself is task 1. */
#include <errno.h>

#include "launcher/batch/batch.h"
#include "worker_sdk/base/str.h"

static const char blanks[] = " \t\r\n";

/* Which host of `nodes` is on line `slot` of the file, and whether that is the host's first line.
 * -1: the file has fewer lines. */
static int find_slot(const struct batch_place *place, const char *text, int slot,
                     bool *is_first)
{
    const char *before = "";
    size_t before_length = 0;

    for (int i = 0; *(text += strspn(text, blanks)); i++) {
        size_t length = strcspn(text, blanks);

        *is_first = length != before_length || strncmp(text, before, length) != 0;
        for (size_t k = 0; i == slot && k < place->nodes.count; k++)
            if (strncmp(place->nodes.names[k], text, length) == 0 &&
                !place->nodes.names[k][length])
                return (int)k;
        before = text;
        before_length = length;
        text += length;
    }
    return -1;
}

static int find_node(struct batch_place *out, const struct batch_source *from,
                     struct ctrun_error *err)
{
    const char *path = batch_text(from, "PBS_NODEFILE");
    bool is_torque = batch_text(from, "PBS_VNODENUM") != NULL;
    const char *name = is_torque ? "PBS_VNODENUM" : "PBS_NODENUM";
    bool is_first = true;
    int slot = 0;
    char *text;
    int rc = batch_number(from, name, &slot, err);

    if (rc < 0)
        return rc;
    if (!(text = from->read(from->context, path)))
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "PBS: PBS_NODEFILE=%s cannot be read any more", path);
    out->node_id = find_slot(out, text, slot, &is_first);
    free(text);
    if (out->node_id < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "PBS: %s is %d, PBS_NODEFILE=%s has fewer lines", name, slot,
                       path);
    if (!is_first)
        return ct_fail(err, CTRUN_E_USAGE,
                       "PBS: pbsdsh starts several tasks on %s, ctrun needs one and "
                       "starts the workers itself: %s",
                       out->nodes.names[out->node_id],
                       is_torque ? "pbsdsh -u ctrun --nproc-per-node=N ..."
                                 : "qsub -l select=NODES:ncpus=C:mpiprocs=1");
    return 0;
}

int batch_pbs_read(struct batch_place *out, const struct batch_source *from,
                   struct ctrun_error *err)
{
    const char *job = batch_text(from, "PBS_JOBID");
    const char *task = batch_text(from, "PBS_TASKNUM");
    int rc;

    if (!job || !task || !batch_text(from, "PBS_NODEFILE") || strcmp(task, "1") == 0 ||
        strcmp(task, "00000001") == 0)
        return 0; /* not in a job, or in its script */
    out->system = "PBS";
    out->has_size = true;
    if ((rc = batch_hosts_list(&out->nodes, out->run_id, sizeof out->run_id, from,
                               err)) < 0)
        return rc;
    if (batch_set_tasks(out, 1) < 0)
        return ct_fail(err, -ENOMEM, "PBS: out of memory");
    if ((rc = find_node(out, from, err)) < 0)
        return rc;
    (void)ct_format(out->job, sizeof out->job, "job %.100s", job);
    return batch_check(out, batch_hash(job), err);
}
