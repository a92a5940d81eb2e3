/* SPDX-License-Identifier: Apache-2.0 */
/* LSF: what blaunch starts. Its tasks are numbered from 1, over the slots of the job or, with
 * blaunch -z "HOSTS", over these hosts; our own host's name tells which. */
#include <errno.h>

#include "launcher/batch/batch.h"
#include "worker_sdk/base/str.h"

static bool is_here(const struct batch_place *place, const struct batch_source *from,
                    int node)
{
    return from->host && batch_is_same_host(place->nodes.names[node], from->host);
}

/* LSB_MCPU_HOSTS has "host slots" pairs in the order of `nodes`; a host may come twice. */
static int read_slots(struct batch_place *out, const struct batch_source *from,
                      struct ctrun_error *err)
{
    const char *text = batch_text(from, "LSB_MCPU_HOSTS");
    size_t at = 0;

    for (size_t word = 0; text && *(text += strspn(text, " ")); word++) {
        size_t length = strcspn(text, " ");
        char number[16];
        uint64_t slots;

        if (word % 2 == 0) {
            for (at = 0; at < out->nodes.count; at++)
                if (strncmp(out->nodes.names[at], text, length) == 0 &&
                    !out->nodes.names[at][length])
                    break;
        } else if (at == out->nodes.count ||
                   ct_format(number, sizeof number, "%.*s", (int)length, text) < 0 ||
                   ct_parse_u64(number, 1, 65536, &slots) < 0 ||
                   out->tasks[at] > 65536) {
            return ct_fail(
                err, CTRUN_E_BAD_ENVIRONMENT,
                "LSF: LSB_MCPU_HOSTS '%.200s' is not a list of hosts and slots",
                batch_text(from, "LSB_MCPU_HOSTS"));
        } else {
            out->tasks[at] += (int)slots;
        }
        text += length;
    }
    return 0;
}

/* Finds the place of task `index`, counted over all slots. False: there are fewer. */
static bool place_by_slots(struct batch_place *out, int index)
{
    for (size_t i = 0; i < out->nodes.count; i++) {
        if (index < out->tasks[i]) {
            out->node_id = (int)i;
            out->local_id = index;
            return true;
        }
        index -= out->tasks[i];
    }
    return false;
}

static void place_by_hosts(struct batch_place *out, int index)
{
    out->node_id = index;
    out->local_id = 0;
    for (size_t i = 0; i < out->nodes.count; i++)
        out->tasks[i] = 1;
}

static int find_place(struct batch_place *out, const struct batch_source *from,
                      struct ctrun_error *err)
{
    int task = 0;
    int rc;

    if ((rc = batch_number(from, "LSF_PM_TASKID", &task, err)) < 0 ||
        (rc = read_slots(out, from, err)) < 0)
        return rc;
    if (task < 1)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "LSF: LSF_PM_TASKID is %d: tasks are counted from 1", task);
    if (batch_task_count(out) == 0) /* LSB_HOSTS alone */
        place_by_hosts(out, task - 1);
    else if (place_by_slots(out, task - 1) && is_here(out, from, out->node_id))
        return 0;
    else if (task <= (int)out->nodes.count && is_here(out, from, task - 1))
        place_by_hosts(out, task - 1);
    else if (!place_by_slots(out, task - 1))
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "LSF: LSF_PM_TASKID is %d, the job has %d slots on %zu hosts",
                       task, batch_task_count(out), out->nodes.count);
    return 0;
}

int batch_lsf_read(struct batch_place *out, const struct batch_source *from,
                   struct ctrun_error *err)
{
    const char *job = batch_text(from, "LSB_JOBID");
    int rc;

    if (!job || !batch_text(from, "LSF_PM_TASKID"))
        return 0; /* not in a job, or in its script */
    out->system = "LSF";
    out->has_size = true;
    if ((rc = batch_hosts_list(&out->nodes, out->run_id, sizeof out->run_id, from,
                               err)) < 0)
        return rc;
    if (batch_set_tasks(out, 0) < 0)
        return ct_fail(err, -ENOMEM, "LSF: out of memory");
    if ((rc = find_place(out, from, err)) < 0)
        return rc;
    (void)ct_format(out->job, sizeof out->job, "job %.100s",
                    out->run_id + strlen("lsf-"));
    return batch_check(out, batch_hash(out->run_id), err);
}
