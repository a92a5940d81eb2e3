/* SPDX-License-Identifier: Apache-2.0 */
/* mpirun, mpiexec and jsrun tell a task its rank and the number of tasks, on this node and in all,
 * but not the hosts: only the batch system around them, if there is one, knows those. */
#include <errno.h>

#include "launcher/batch/batch.h"
#include "worker_sdk/base/str.h"

struct starter {
    const char *system;
    const char *rank;
    const char *size;
    const char *local_rank;
    const char *local_size;
    const char *id; /* NULL: none that all tasks share */
};

static const struct starter starters[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "OMPI_MCA_ess_base_jobid"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE", "LSF_JSRUN_ID"},
    {"PALS", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PALS_APID"},
    {"Hydra", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL},
};

struct numbers {
    int rank;
    int size;
    int local_rank;
    int local_size;
};

static int read_numbers(struct numbers *out, const struct starter *by,
                        const struct batch_source *from, struct ctrun_error *err)
{
    int rc;

    if ((rc = batch_number(from, by->rank, &out->rank, err)) < 0 ||
        (rc = batch_number(from, by->size, &out->size, err)) < 0 ||
        (rc = batch_number(from, by->local_rank, &out->local_rank, err)) < 0 ||
        (rc = batch_number(from, by->local_size, &out->local_size, err)) < 0)
        return rc;
    if (out->rank < out->size && out->local_rank < out->local_size &&
        out->size % out->local_size == 0 &&
        out->rank % out->local_size == out->local_rank)
        return 0;
    return ct_fail(
        err, CTRUN_E_BAD_ENVIRONMENT,
        "%s: task %d of %d is task %d of %d on its node: ctrun needs the tasks of a "
        "node in a row and equally many on each (mpirun --map-by ppr:N:node)",
        by->system, out->rank, out->size, out->local_rank, out->local_size);
}

/* The job's hosts, if they are known and as many as the tasks need. jsrun's list begins with
 * the host that runs the batch script, which gets no task. */
static int name_nodes(struct batch_place *out, int count, char *id, size_t size,
                      const struct batch_source *from, struct ctrun_error *err)
{
    struct hostlist hosts;
    size_t skip;
    int rc = batch_hosts_list(&hosts, id, size, from, err);

    skip = rc == 0 && strcmp(out->system, "jsrun") == 0 &&
                   hosts.count == (size_t)count + 1
               ? 1
               : 0;
    for (int i = 0; rc == 0 && i < count; i++) {
        bool is_known = hosts.count - skip == (size_t)count && hosts.count > skip;
        const char *name = is_known ? hosts.names[(size_t)i + skip] : "?";

        rc = hostlist_add(&out->nodes, count == 1 ? "localhost" : name);
        if (rc < 0)
            (void)ct_fail(err, rc, "%s: %d nodes: %s", out->system, count,
                          strerror(-rc));
    }
    hostlist_deinit(&hosts);
    return rc;
}

static void name_run(struct batch_place *out, const char *id, const char *around,
                     const struct batch_source *from)
{
    if (id)
        (void)ct_format(out->run_id, sizeof out->run_id, "mpi-%.60s%s%.60s", id,
                        *around ? "-" : "", around);
    else if (out->nodes.count == 1) /* all were started by the same process */
        (void)ct_format(out->run_id, sizeof out->run_id, "mpi-pid-%d", from->parent);
    else
        (void)ct_format(out->run_id, sizeof out->run_id, "mpi%s%.60s",
                        *around ? "-" : "", around);
    (void)ct_format(out->job, sizeof out->job, "%.100s", out->run_id);
}

int batch_mpi_read(struct batch_place *out, const struct batch_source *from,
                   struct ctrun_error *err)
{
    const struct starter *by = NULL;
    struct numbers numbers;
    char around[80];
    int rc;

    for (size_t i = 0; !by && i < sizeof starters / sizeof *starters; i++)
        if (batch_text(from, starters[i].rank) && batch_text(from, starters[i].size) &&
            batch_text(from, starters[i].local_size))
            by = &starters[i];
    if (!by)
        return 0;
    out->system = by->system;
    out->has_size = true;
    if ((rc = read_numbers(&numbers, by, from, err)) < 0 ||
        (rc = name_nodes(out, numbers.size / numbers.local_size, around, sizeof around,
                         from, err)) < 0)
        return rc;
    if (batch_set_tasks(out, numbers.local_size) < 0)
        return ct_fail(err, -ENOMEM, "%s: out of memory", by->system);
    out->node_id = numbers.rank / numbers.local_size;
    out->local_id = numbers.local_rank;
    name_run(out, by->id ? batch_text(from, by->id) : NULL, around, from);
    return batch_check(out, batch_hash(out->run_id), err);
}
