/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "launcher/config/jax_env.h"
#include "tests/lib/full_env.h"
#include "tests/lib/test.h"

static const struct jax_place place = {.rank = 5,
                                       .world_size = 8,
                                       .local_rank = 1,
                                       .nodes = 2,
                                       .coordinator = "fd00::1",
                                       .port = 29501};

TEST(a_worker_sees_its_own_place)
{
    static const char *const before[][2] = {{"SLURM_PROCID", "0"},
                                            {"SLURM_NTASKS", "2"},
                                            {"SLURM_JOB_ID", "77"},
                                            {"PRTE_LAUNCHED", "1"},
                                            {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://h:1"}};
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, NULL), 0);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        assert_int_equal(ct_env_set(&env, before[i][0], before[i][1]), 0);
    assert_int_equal(jax_env_set(&env, &place), 0);
    assert_string_equal(ct_env_get(&env, "JAX_COORDINATOR_ADDRESS"), "[fd00::1]:29501");
    assert_string_equal(ct_env_get(&env, "SLURM_PROCID"), "5");
    assert_string_equal(ct_env_get(&env, "SLURM_NTASKS"), "8");
    assert_string_equal(ct_env_get(&env, "SLURM_LOCALID"), "1");
    assert_string_equal(ct_env_get(&env, "SLURM_STEP_NUM_NODES"), "2");
    assert_string_equal(ct_env_get(&env, "SLURM_JOB_ID"), "77");
    assert_string_equal(ct_env_get(&env, "SLURM_STEP_NODELIST"), "fd00::1");
    assert_null(ct_env_get(&env, "PRTE_LAUNCHED"));
    assert_null(ct_env_get(&env, "OMPI_MCA_orte_hnp_uri"));
    jax_env_remove(&env);
    assert_null(ct_env_get(&env, "JAX_COORDINATOR_ADDRESS"));
    assert_null(ct_env_get(&env, "SLURM_PROCID"));
    assert_non_null(ct_env_get(&env, "SLURM_JOB_ID"));
    ct_env_deinit(&env);
}

static int set(struct ct_env *env)
{
    return jax_env_set(env, &place);
}

TEST(no_memory_for_a_variable_is_told)
{
    assert_true(full_env_fail_each(set) > 3);
}
