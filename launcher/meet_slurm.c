/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/meet_slurm.h"

#include "launcher/slurm.h"
#include "worker_sdk/base/str.h"

/* True when the user says himself how to meet: Slurm is not asked then. */
static bool is_told_otherwise(const struct options *options)
{
    return options->values[OPTION_STANDALONE].is_on ||
           option_has_text(options, OPTION_RDZV_BACKEND) ||
           option_has_text(options, OPTION_RDZV_ENDPOINT) ||
           option_has_text(options, OPTION_MASTER_ADDR) ||
           option_has_text(options, OPTION_MASTER_PORT) ||
           option_is_given(options, OPTION_NODE_RANK);
}

static const char *get(const void *env, const char *name)
{
    return option_env(*(char *const *const *)env, name);
}

static int check(const struct slurm_place *place, const struct config *config,
                 const struct options *options, struct ctrun_error *err)
{
    int nodes = (int)place->nodes.count;

    if (place->tasks_here > 1)
        return ct_fail(err, CTRUN_E_USAGE,
                       "Slurm starts %d tasks of this step on %s, ctrun wants one per "
                       "node and starts the workers itself: srun --ntasks-per-node=1 "
                       "ctrun --nproc-per-node=%d ...",
                       place->tasks_here, place->nodes.names[place->node_id],
                       place->tasks_here);
    if (option_has_text(options, OPTION_NNODES) && config->nodes.max > nodes)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--nnodes=%s: the Slurm step has %d node%s; srun -N%d gives more",
            option_text(options, OPTION_NNODES), nodes, nodes > 1 ? "s" : "",
            config->nodes.max);
    return 0;
}

static int fill(struct config *config, const struct options *options,
                const struct slurm_place *place, struct ctrun_error *err)
{
    config->is_by_slurm = true;
    if (!option_has_text(options, OPTION_NNODES))
        config->nodes.min = config->nodes.max = (int)place->nodes.count;
    if (!option_has_text(options, OPTION_RDZV_ID))
        (void)ct_copy(config->run_id, sizeof config->run_id, place->run_id);
    if (config->nodes.max == 1)
        return 0; /* one node meets nobody, as without Slurm */
    if (ct_copy(config->endpoint.host, sizeof config->endpoint.host,
                place->nodes.names[0]) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       "Slurm: node name '%.40s...' is "
                       "longer than a host name can be",
                       place->nodes.names[0]);
    config->backend = CONFIG_C10D;
    config->node_rank = place->node_id;
    config->endpoint.port = place->ports[0];
    if (!ct_port_range_has(&config->ports, config->endpoint.port))
        config->endpoint.port = ct_port_range_at(&config->ports, place->ports[0], 0);
    config->is_host = place->node_id == 0 ? CONFIG_HOST_YES : CONFIG_HOST_NO;
    return 1;
}

int meet_slurm_resolve(struct config *config, const struct options *options,
                       struct ctrun_error *err)
{
    struct slurm_place place;
    int rc;

    if (is_told_otherwise(options))
        return 0;
    if ((rc = slurm_place_read(&place, get, &config->env, err)) <= 0)
        return rc;
    if ((rc = check(&place, config, options, err)) == 0)
        rc = fill(config, options, &place, err);
    slurm_place_deinit(&place);
    return rc;
}
