/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/rdzv_pmi.h"

#include <sys/socket.h>

#include "launcher/pmi/pmi_client.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

static bool is_stream_socket(int fd)
{
    int type;
    socklen_t size = sizeof type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
           type == SOCK_STREAM;
}

static bool read_number(const struct batch_source *from, const char *name, int min,
                        int *out, struct ctrun_error *why)
{
    if (batch_number(from, name, out, why) < 0)
        return false;
    if (*out < min)
        (void)ct_fail(why, CTRUN_E_BAD_ENVIRONMENT, "%s is %d: at least %d is needed",
                      name, *out, min);
    return *out >= min;
}

static bool read_environment(struct config_pmi *out, const struct batch_source *from,
                             struct ctrun_error *why)
{
    const char *job = batch_text(from, "PMI_JOBID");

    (void)ct_copy(out->job, sizeof out->job, job ? job : "");
    return read_number(from, "PMI_FD", 3, &out->fd, why) &&
           read_number(from, "PMI_RANK", 0, &out->rank, why) &&
           read_number(from, "PMI_SIZE", 1, &out->size, why);
}

static bool needs_all_tasks(const struct options *options,
                            const struct batch_place *place, const struct nnodes *nodes)
{
    return nodes->min == nodes->max && (batch_shape(place, options) == BATCH_RANKS ||
                                        (size_t)nodes->max == place->nodes.count);
}

__attribute__((format(printf, 2, 3))) static void refuse(struct config_pmi *out,
                                                         const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(out->why_not, sizeof out->why_not, fmt, args);
    va_end(args);
}

/* True when PMI is left to the program. All tasks of the step must get the same answer. */
static bool is_left_to_workers(const struct options *options,
                               const struct batch_place *place)
{
    return batch_shape(place, options) == BATCH_RANKS &&
           strcmp(option_text(options, OPTION_BOOTSTRAP), "pmi") != 0;
}

void rdzv_pmi_find(struct config_pmi *out, const struct options *options,
                   const struct batch_place *place, const struct nnodes *nodes,
                   const struct batch_source *from)
{
    struct ctrun_error why = {0};
    const int tasks = batch_task_count(place);

    *out = (struct config_pmi){
        .is_required = strcmp(option_text(options, OPTION_BOOTSTRAP), "pmi") == 0};
    if (strcmp(place->system, "Slurm") != 0)
        return;
    if (is_left_to_workers(options, place) && read_environment(out, from, &why))
        out->is_for_worker = is_stream_socket(out->fd);
    if (strcmp(option_text(options, OPTION_BOOTSTRAP), "port") == 0)
        refuse(out, "--bootstrap=port");
    else if (!batch_text(from, "PMI_FD"))
        refuse(out, "PMI_FD is not set; srun --mpi=pmi2 sets it");
    else if (is_left_to_workers(options, place))
        refuse(out, "each task is a rank, and its program may use MPI, which needs the "
                    "PMI server");
    else if (!read_environment(out, from, &why))
        refuse(out, "%s", why.text);
    else if (out->size != tasks)
        refuse(out, "PMI_SIZE is %d, and the step has %d tasks", out->size, tasks);
    else if (!needs_all_tasks(options, place, nodes))
        refuse(out,
               "--nnodes=%s may begin without some tasks, and PMI waits for all tasks",
               option_text(options, OPTION_NNODES));
    else if (!is_stream_socket(out->fd))
        refuse(out,
               "PMI_FD=%d is not an open socket here: perhaps the program that started "
               "ctrun has closed it",
               out->fd);
    else
        out->is_used = true;
}

int rdzv_pmi_check(const struct rdzv_target *to, const struct options *options,
                   struct ctrun_error *err)
{
    const char *why_not = to->rdzv->pmi.why_not;

    if (strcmp(option_text(options, OPTION_BOOTSTRAP), "pmi") != 0 ||
        to->rdzv->pmi.is_used || to->run->nodes.max == 1)
        return 0;
    return ct_fail(err, CTRUN_E_USAGE, "--bootstrap=pmi: %s",
                   *why_not
                       ? why_not
                       : "only for tasks of srun --mpi=pmi2 without an option that "
                         "says where to meet (--rdzv-endpoint, --rdzv-backend, "
                         "--master-addr, --master-port, --node-rank)");
}

void rdzv_pmi_attend(const struct options *options, const struct batch_place *place,
                     const struct batch_source *from)
{
    struct nnodes nodes = {(int)place->nodes.count, (int)place->nodes.count};
    struct ctrun_error why = {.text = "out of memory"};
    struct pmi_client *client;
    struct config_pmi pmi;

    if (nodes.max == 1 ||
        (option_has_text(options, OPTION_NNODES) &&
         nnodes_parse(option_text(options, OPTION_NNODES), &nodes, NULL) < 0))
        return;
    rdzv_pmi_find(&pmi, options, place, &nodes, from);
    if (!pmi.is_used)
        return;
    client = ct_zalloc(sizeof *client);
    if (!client || pmi_client_open(client, pmi.fd, pmi.job, pmi.rank, &why) < 0 ||
        pmi_client_fence_begin(client, &why) < 0)
        ct_warn("srun's PMI: %s; the other tasks of this step may wait for this one",
                why.text);
    free(client); /* the socket stays open: the server knows this task by it alone */
}
