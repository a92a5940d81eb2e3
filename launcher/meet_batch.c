/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/meet_batch.h"

#include "launcher/meet_pmi.h"
#include "launcher/nested.h"
#include "launcher/slurm.h"
#include "worker_sdk/base/str.h"

bool meet_batch_is_told(const struct options *options)
{
    return options->values[OPTION_STANDALONE].is_on ||
           option_has_text(options, OPTION_RDZV_BACKEND) ||
           option_has_text(options, OPTION_RDZV_ENDPOINT) ||
           option_has_text(options, OPTION_MASTER_ADDR) ||
           option_has_text(options, OPTION_MASTER_PORT) ||
           option_is_given(options, OPTION_NODE_RANK);
}

static int refuse_size(const struct batch_place *place, const struct config *config,
                       const struct options *options, struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_NNODES);
    int nodes = (int)place->nodes.count;

    if (config->nodes.max > nodes)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--nnodes=%s: %s has given %d node%s; srun -N%d or its like "
                       "gives more",
                       text, place->system, nodes, nodes > 1 ? "s" : "",
                       config->nodes.max);
    return ct_fail(
        err, CTRUN_E_USAGE,
        "--nnodes=%s: %s has given %d node%s, and each of its %d tasks is one "
        "rank: leave --nnodes out, or give --nproc-per-node",
        text, place->system, nodes, nodes > 1 ? "s" : "", batch_task_count(place));
}

static int check(const struct batch_place *place, enum batch_shape shape,
                 const struct config *config, const struct options *options,
                 struct ctrun_error *err)
{
    int nodes = (int)place->nodes.count;
    bool is_given = option_has_text(options, OPTION_NNODES);

    if (!place->has_size)
        return place->node_id < config->nodes.max
                   ? 0
                   : ct_fail(err, CTRUN_E_USAGE,
                             "--nnodes=%s: this is pod %d, counted from 0; say as many "
                             "as the Job's completions",
                             option_text(options, OPTION_NNODES), place->node_id);
    if (is_given && shape == BATCH_RANKS &&
        (config->nodes.min != config->nodes.max ||
         (config->nodes.max != nodes && config->nodes.max != batch_task_count(place))))
        return refuse_size(place, config, options, err);
    if (is_given && shape != BATCH_RANKS && config->nodes.max > nodes)
        return refuse_size(place, config, options, err);
    return 0;
}

/* Each task is an agent with one worker, and all workers of a node see one another. */
static void fill_task(struct config *config, const struct batch_place *place)
{
    struct ct_layout layout = {0};

    config->task = (struct config_task){
        .is_rank = true,
        .is_quiet = place->local_id > 0,
        .local_id = place->local_id,
        .local_count = place->tasks[place->node_id],
        .node_id = place->node_id,
        .node_count = (int)place->nodes.count,
    };
    for (size_t i = 0; i < place->nodes.count; i++)
        ct_layout_add(&layout, (uint32_t)place->tasks[i]);
    (void)ct_copy(config->task.layout, sizeof config->task.layout,
                  ct_layout_end(&layout));
    config->nodes.min = config->nodes.max = batch_task_count(place);
}

static void describe(struct config *config, const struct batch_place *place)
{
    int index = batch_task_index(place);

    config->batch_system = place->system;
    config->requeues = place->requeues;
    if (place->has_size)
        (void)ct_format(config->batch, sizeof config->batch,
                        "%s %s, node %d of %zu (%s), task %d of %d", place->system,
                        place->job, place->node_id, place->nodes.count,
                        place->nodes.names[place->node_id], index,
                        batch_task_count(place));
    else
        (void)ct_format(config->batch, sizeof config->batch, "%s %s", place->system,
                        place->job);
}

static int fill(struct config *config, const struct options *options,
                const struct batch_place *place, enum batch_shape shape,
                const struct batch_source *source, struct ctrun_error *err)
{
    describe(config, place);
    if (shape == BATCH_RANKS)
        fill_task(config, place);
    else if (place->has_size && !option_has_text(options, OPTION_NNODES))
        config->nodes.min = config->nodes.max = (int)place->nodes.count;
    if (!option_has_text(options, OPTION_RDZV_ID))
        (void)ct_copy(config->run_id, sizeof config->run_id, place->run_id);
    if (config->nodes.max == 1)
        return 0; /* one node meets nobody, as without a batch system */
    if (strcmp(place->nodes.names[0], "?") == 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "%s starts tasks on %zu nodes, but does not say which these are; give all "
            "of them --rdzv-endpoint=HOST:PORT of the first node and --nnodes=%d",
            place->system, place->nodes.count, config->nodes.max);
    if (ct_copy(config->endpoint.host, sizeof config->endpoint.host,
                place->nodes.names[0]) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "%s: node name '%.40s...' is longer than a host name can be",
                       place->system, place->nodes.names[0]);
    config->backend = CONFIG_C10D;
    config->node_rank = shape == BATCH_RANKS ? batch_task_index(place) : place->node_id;
    config->endpoint.port = place->ports[0];
    if (!ct_port_range_has(&config->ports, config->endpoint.port))
        config->endpoint.port = ct_port_range_at(&config->ports, place->ports[0], 0);
    config->is_host = config->node_rank == 0 ? CONFIG_HOST_YES : CONFIG_HOST_NO;
    meet_pmi_find(&config->pmi, options, place, &config->nodes, source);
    return 1;
}

/* The user says how to meet. Then several tasks a node are nodes, if he counts them so. */
static int check_told(const struct batch_place *place, enum batch_shape shape,
                      const struct config *config, const struct options *options,
                      struct ctrun_error *err)
{
    if (shape != BATCH_RANKS || options->values[OPTION_STANDALONE].is_on ||
        config->nodes.max <= 1 || config->nodes.max >= batch_task_count(place))
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "%s starts %d tasks on %zu node%s, and --nnodes=%s agents are to "
                   "meet: leave the endpoint out, and each task is a rank; or give "
                   "--nproc-per-node, and the tasks of a node are one agent; or start "
                   "one task a node (srun --ntasks-per-node=1)",
                   place->system, batch_task_count(place), place->nodes.count,
                   place->nodes.count > 1 ? "s" : "",
                   option_text(options, OPTION_NNODES));
}

int meet_batch_resolve(struct config *config, const struct options *options,
                       struct ctrun_error *err)
{
    const struct batch_source source = batch_source_of(&config->env);
    bool is_told = meet_batch_is_told(options);
    enum batch_shape shape;
    struct batch_place place;
    bool is_nested;
    int rc = batch_find(&place, &source, err);

    config->kill_wait_s = slurm_grace(&source);
    if (rc < 0 && is_told) /* then its variables do not matter either */
        return 0;
    if (rc <= 0)
        return rc;
    (void)ct_copy(config->batch_task, sizeof config->batch_task, place.run_id);
    shape = batch_shape(&place, options);
    is_nested = nested_is_in_task(config->env, place.run_id);
    if (!is_nested) {
        config->node_id = place.node_id;
        config->node_count = place.has_size ? (int)place.nodes.count : 0;
    }
    if (is_nested)
        rc = 0;
    else if (is_told)
        rc = check_told(&place, shape, config, options, err);
    else if ((rc = check(&place, shape, config, options, err)) == 0)
        rc = fill(config, options, &place, shape, &source, err);
    batch_place_deinit(&place);
    return rc;
}
