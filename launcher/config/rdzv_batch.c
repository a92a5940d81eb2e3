/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/rdzv_batch.h"

#include <errno.h>

#include "launcher/batch/batch_systems.h"
#include "launcher/batch/nested.h"
#include "launcher/batch/slurm.h"
#include "launcher/config/rdzv_pmi.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

bool rdzv_batch_is_given(const struct options *options)
{
    return options->values[OPTION_STANDALONE].is_on ||
           option_has_text(options, OPTION_RDZV_BACKEND) ||
           option_has_text(options, OPTION_RDZV_ENDPOINT) ||
           option_has_text(options, OPTION_MASTER_ADDR) ||
           option_has_text(options, OPTION_MASTER_PORT) ||
           option_is_given(options, OPTION_NODE_RANK);
}

static int refuse_size(const struct batch_place *place, const struct rdzv_target *to,
                       const struct options *options, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_NNODES);
    int nodes = (int)place->nodes.count;

    if (to->run->nodes.max > nodes)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--nnodes=%s: %s has given %d node%s; srun -N%d or its like "
                       "gives more, where the job has as many (#SBATCH --nodes=%d)",
                       text, place->system, nodes, nodes > 1 ? "s" : "",
                       to->run->nodes.max, to->run->nodes.max);
    return ct_fail(
        err, CTRUN_E_USAGE,
        "--nnodes=%s: %s has given %d node%s, and each of its %d tasks is one "
        "rank: leave --nnodes out; give --nproc-per-node above 1, and the tasks of a "
        "node are one agent; or start the step on fewer nodes (srun -N%d)",
        text, place->system, nodes, nodes > 1 ? "s" : "", batch_task_count(place),
        to->run->nodes.max);
}

/* The agent would be one task, and its workers would see only the GPUs of that task. */
static int refuse_own_gpus(const struct batch_place *place,
                           const struct options *options, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_USAGE,
                   "%s starts %d tasks on %zu node%s, each with %d GPU%s that the "
                   "others do not see, and %s needs one agent a node: leave "
                   "--nproc-per-node out, and each task is a rank; or start one task a "
                   "node with all GPUs (srun --ntasks-per-node=1 --gpus-per-node=N)",
                   place->system, batch_task_count(place), place->nodes.count,
                   place->nodes.count > 1 ? "s" : "", place->task_gpus,
                   place->task_gpus > 1 ? "s" : "",
                   options->role_count > 0 ? "--role=NAME=N:COMMAND"
                                           : "--nproc-per-node");
}

static int check(const struct batch_place *place, enum batch_shape shape,
                 const struct rdzv_target *to, const struct options *options,
                 struct ctrun_error *err)
{
    int nodes = (int)place->nodes.count;
    bool is_given = option_has_text(options, OPTION_NNODES);

    if (shape == BATCH_MERGE && place->task_gpus > 0)
        return refuse_own_gpus(place, options, err);
    if (!place->has_size)
        return place->node_id < to->run->nodes.max
                   ? 0
                   : ct_fail(err, CTRUN_E_USAGE,
                             "--nnodes=%s: this is pod %d, counted from 0; give the "
                             "number of the Job's completions",
                             option_text(options, OPTION_NNODES), place->node_id);
    if (is_given && shape == BATCH_RANKS &&
        (to->run->nodes.min != to->run->nodes.max ||
         (to->run->nodes.max != nodes &&
          to->run->nodes.max != batch_task_count(place))))
        return refuse_size(place, to, options, err);
    if (is_given && shape != BATCH_RANKS && to->run->nodes.max > nodes)
        return refuse_size(place, to, options, err);
    return 0;
}

/* Each task is an agent with one worker, and all workers of a node see one another. */
static void fill_task(const struct rdzv_target *to, const struct batch_place *place)
{
    struct ct_layout layout = {0};

    to->run->task = (struct config_task){
        .is_rank = true,
        .is_quiet = place->local_id > 0,
        .local_id = place->local_id,
        .local_count = place->tasks[place->node_id],
        .node_id = place->node_id,
        .node_count = (int)place->nodes.count,
    };
    for (size_t i = 0; i < place->nodes.count; i++)
        ct_layout_add(&layout, (uint32_t)place->tasks[i]);
    (void)ct_copy(to->run->task.layout, sizeof to->run->task.layout,
                  ct_layout_end(&layout));
    to->run->nodes.min = to->run->nodes.max = batch_task_count(place);
    to->run->nproc = 1; /* the node's tasks are the workers that were asked for */
}

static void describe(const struct rdzv_target *to, const struct batch_place *place)
{
    int index = batch_task_index(place);

    to->run->batch_system = place->system;
    to->run->requeues = place->requeues;
    if (place->has_size)
        (void)ct_format(to->run->batch, sizeof to->run->batch,
                        "%s %s, node %d of %zu (%s), task %d of %d", place->system,
                        place->job, place->node_id, place->nodes.count,
                        place->nodes.names[place->node_id], index,
                        batch_task_count(place));
    else
        (void)ct_format(to->run->batch, sizeof to->run->batch, "%s %s", place->system,
                        place->job);
}

static bool has_names(const struct batch_place *place)
{
    return strcmp(place->nodes.names[0], "?") != 0;
}

/* The agents that must come, for messages that name the absent ones. */
static int name_nodes(const struct rdzv_target *to, const struct batch_place *place,
                      enum batch_shape shape)
{
    const size_t count = place->has_size ? place->nodes.count : 0;
    struct run_config *run = to->run;
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0 && has_names(place); i++)
        rc = hostlist_add(&run->expected, place->nodes.names[i]);
    if (rc < 0 || shape != BATCH_RANKS)
        return rc;
    if (!(run->expected_tasks = ct_zalloc_array(count, sizeof *run->expected_tasks)))
        return -ENOMEM;
    memcpy(run->expected_tasks, place->tasks, count * sizeof *run->expected_tasks);
    return 0;
}

/* The same ports in the same order on every node. */
static void derive_places(const struct rdzv_target *to, const struct batch_place *place)
{
    const struct ct_port_range *range = &to->rdzv->ports;
    const bool is_within = ct_port_range_has(range, place->ports[0]);
    const int count = is_within ? BATCH_PORTS : ct_port_range_count(range);

    for (int i = 0; i < count && i < CONFIG_PLACES_MAX; i++) {
        const uint16_t port = is_within ? place->ports[i]
                                        : ct_port_range_at(range, place->ports[0], i);

        if (ct_port_range_has(range, port))
            to->rdzv->places[to->rdzv->place_count++] = port;
    }
    to->rdzv->endpoint.port = to->rdzv->places[0];
}

static int fill(const struct rdzv_target *to, const struct options *options,
                const struct batch_place *place, enum batch_shape shape,
                const struct batch_source *source, struct ctrun_error *err)
{
    describe(to, place);
    if (shape == BATCH_RANKS)
        fill_task(to, place);
    else if (place->has_size && !option_has_text(options, OPTION_NNODES))
        to->run->nodes.min = to->run->nodes.max = (int)place->nodes.count;
    if (!option_has_text(options, OPTION_RDZV_ID))
        (void)ct_copy(to->run->run_id, sizeof to->run->run_id, place->run_id);
    if (to->run->nodes.max == 1)
        return 0; /* one node needs no other, as without a batch system */
    if (!has_names(place))
        return ct_fail(
            err, CTRUN_E_USAGE,
            "%s starts tasks on %zu nodes, but does not name them; give all of them "
            "--rdzv-endpoint=HOST:PORT of the first node and --nnodes=%d",
            place->system, place->nodes.count, to->run->nodes.max);
    if (ct_copy(to->rdzv->endpoint.host, sizeof to->rdzv->endpoint.host,
                place->nodes.names[0]) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "%s: node name '%.40s...' is longer than a host name can be",
                       place->system, place->nodes.names[0]);
    if (name_nodes(to, place, shape) < 0)
        return ct_fail(err, -ENOMEM, "out of memory");
    to->rdzv->backend = CONFIG_C10D;
    to->run->node_rank = shape == BATCH_RANKS ? batch_task_index(place)
                                              : place->node_id;
    derive_places(to, place);
    to->rdzv->is_host = to->run->node_rank == 0 ? CONFIG_HOST_YES : CONFIG_HOST_NO;
    rdzv_pmi_find(&to->rdzv->pmi, options, place, &to->run->nodes, source);
    return 1;
}

/* An endpoint alone, which all nodes of the step may reach. One at loopback, or at any free port, means runs of a
 * task each. */
static bool has_common_endpoint(const struct options *options,
                                const struct batch_place *place)
{
    const char *backend = option_text(options, OPTION_RDZV_BACKEND);
    struct ct_endpoint endpoint;
    struct ctrun_error why;
    struct ct_addr addr;

    return !options->values[OPTION_STANDALONE].is_on &&
           option_has_text(options, OPTION_RDZV_ENDPOINT) &&
           ct_endpoint_parse(option_text(options, OPTION_RDZV_ENDPOINT), &endpoint,
                             &why) >= 0 &&
           endpoint.port != 0 && !ct_addr_is_localhost(endpoint.host) &&
           !(ct_addr_parse(endpoint.host, 0, &addr) == 0 &&
             ct_addr_is_loopback(&addr)) &&
           (!*backend || strcmp(backend, "c10d") == 0) &&
           !option_has_text(options, OPTION_MASTER_ADDR) &&
           !option_has_text(options, OPTION_MASTER_PORT) &&
           !option_is_given(options, OPTION_NODE_RANK) && place->has_size &&
           place->nodes.count > 1;
}

/* Without --nnodes each task would otherwise be a run of its own, and the one that owns the endpoint would train
 * alone. If --nnodes is the step's size, too, all of its nodes (or tasks) are expected. */
static int keep_size(const struct rdzv_target *to, const struct options *options,
                     const struct batch_place *place, enum batch_shape shape)
{
    const int size = shape == BATCH_RANKS ? batch_task_count(place)
                                          : (int)place->nodes.count;

    if (!has_common_endpoint(options, place))
        return 0;
    if (option_has_text(options, OPTION_NNODES))
        return to->run->nodes.max == size ? name_nodes(to, place, shape) : 0;
    to->run->nodes.min = to->run->nodes.max = size;
    if (shape == BATCH_RANKS)
        to->run->nproc = 1; /* as in fill_task() */
    to->run->sized_by = place->system;
    if (batch_task_index(place) == 0)
        ct_warn("--rdzv-endpoint without --nnodes: one run of the %d %s that %s "
                "gives; --nnodes=1 makes each a run of its own",
                size, shape == BATCH_RANKS ? "tasks" : "nodes", place->system);
    return name_nodes(to, place, shape);
}

/* The user configures the rendezvous. Then several tasks a node are nodes, if --nnodes counts them
 * so. */
static int check_given(const struct batch_place *place, enum batch_shape shape,
                       const struct rdzv_target *to, const struct options *options,
                       struct ctrun_error *err)
{
    if (shape != BATCH_RANKS || options->values[OPTION_STANDALONE].is_on ||
        to->run->nodes.max <= 1 || to->run->nodes.max >= batch_task_count(place))
        return 0;
    return ct_fail(
        err, CTRUN_E_USAGE,
        "%s starts %d tasks on %zu node%s, but with an endpoint it must start "
        "--nnodes=%s: leave the endpoint out, and each task is a rank; or give "
        "--nproc-per-node above 1, and the tasks of a node are one agent; or start "
        "one task a node (srun --ntasks-per-node=1)",
        place->system, batch_task_count(place), place->nodes.count,
        place->nodes.count > 1 ? "s" : "", option_text(options, OPTION_NNODES));
}

static void warn_standalone(const struct batch_place *place,
                            const struct options *options)
{
    if (options->values[OPTION_STANDALONE].is_on && place->has_size &&
        batch_task_count(place) > 1 && batch_task_index(place) == 0)
        ct_warn("--standalone: each of the %d tasks that %s starts is a run of its "
                "own; without --standalone they are one run",
                batch_task_count(place), place->system);
}

/* In a batch script ctrun runs once, on the first node, and the others would be idle. A user who
 * wants that gives --nnodes=1; a worker that starts a ctrun of its own is not refused either. */
static int refuse_without_step(const struct rdzv_target *to,
                               const struct options *options,
                               const struct batch_source *source,
                               struct ctrun_error *err)
{
    const int nodes = slurm_nodes_without_step(source);

    if (nodes < 2 || batch_text(source, CT_ENV_RUN_ID) ||
        (option_has_text(options, OPTION_NNODES) && to->run->nodes.max == 1))
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "Slurm has given this job %d nodes, and this process runs on one of "
                   "them: put srun in front (srun --ntasks-per-node=1 ctrun ...), or "
                   "give --nnodes=1 to use this node alone",
                   nodes);
}

int rdzv_batch_resolve(const struct rdzv_target *to, const struct options *options,
                       struct ctrun_error *err)
{
    const struct batch_source source = batch_source_of(&to->env);
    bool is_given = rdzv_batch_is_given(options);
    enum batch_shape shape;
    struct batch_place place;
    bool is_nested;
    int rc = batch_find(&place, &source, err);

    to->run->kill_wait_s = slurm_grace(&source);
    if (rc < 0 && is_given) /* then its variables do not matter either */
        return 0;
    if (rc == 0 && !is_given)
        return refuse_without_step(to, options, &source, err);
    if (rc <= 0)
        return rc;
    (void)ct_copy(to->run->batch_task, sizeof to->run->batch_task, place.run_id);
    shape = batch_shape(&place, options);
    is_nested = nested_is_in_task(to->env, place.run_id);
    if (!is_nested) {
        to->run->node_id = place.node_id;
        to->run->node_count = place.has_size ? (int)place.nodes.count : 0;
    }
    if (is_nested)
        rc = 0;
    else if (is_given) {
        warn_standalone(&place, options);
        if (keep_size(to, options, &place, shape) < 0)
            rc = ct_fail(err, -ENOMEM, "out of memory");
        else
            rc = check_given(&place, shape, to, options, err);
    } else if ((rc = check(&place, shape, to, options, err)) == 0)
        rc = fill(to, options, &place, shape, &source, err);
    batch_place_deinit(&place);
    return rc;
}
