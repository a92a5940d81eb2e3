/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/jax_env.h"

#include <string.h>

static const char coordinator_name[] = "JAX_COORDINATOR_ADDRESS";
static const char job_name[] = "SLURM_JOB_ID";
static const char list_name[] = "SLURM_STEP_NODELIST";

static const char *const number_names[] = {"SLURM_PROCID", "SLURM_NTASKS",
                                           "SLURM_LOCALID", "SLURM_STEP_NUM_NODES"};

/* How JAX finds out that Open MPI has started it: by mpirun of version 4, and 5. */
static const char *const mpi_names[] = {"OMPI_MCA_orte_hnp_uri", "PRTE_LAUNCHED"};

static int set_default(struct ct_env *env, const char *name, const char *value)
{
    return ct_env_get(env, name) ? 0 : ct_env_set(env, name, value);
}

int jax_env_set(struct ct_env *env, const struct jax_place *place)
{
    const uint64_t numbers[] = {place->rank, place->world_size, place->local_rank,
                                place->nodes};
    const bool is_v6 = strchr(place->coordinator, ':');
    int rc = ct_env_setf(env, coordinator_name, "%s%s%s:%u", is_v6 ? "[" : "",
                         place->coordinator, is_v6 ? "]" : "", place->port);

    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof *numbers; i++)
        rc = ct_env_setf(env, number_names[i], "%llu", (unsigned long long)numbers[i]);
    for (size_t i = 0; i < sizeof mpi_names / sizeof *mpi_names; i++)
        ct_env_remove(env, mpi_names[i]);
    if (rc < 0 || (rc = set_default(env, job_name, "1")) < 0)
        return rc; /* a job's number: its presence means that there is a step */
    return set_default(env, list_name, place->coordinator);
}

void jax_env_remove(struct ct_env *env)
{
    ct_env_remove(env, coordinator_name);
    for (size_t i = 0; i < sizeof number_names / sizeof *number_names; i++)
        ct_env_remove(env, number_names[i]);
}
