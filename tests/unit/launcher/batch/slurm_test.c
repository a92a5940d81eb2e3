/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "launcher/batch/batch_systems.h"
#include "launcher/batch/slurm.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"

/* Task 3 of a plain srun in a batch job (3 nodes, 2 tasks each), as Slurm 22.05 sets it. */
static char *const step[] = {
    (char[]){"SLURM_JOB_ID=4"},
    (char[]){"SLURM_STEP_ID=0"},
    (char[]){"SLURM_JOB_NODELIST=node[1-4]"},
    (char[]){"SLURM_STEP_NODELIST=node[1-3]"},
    (char[]){"SLURM_NODEID=1"},
    (char[]){"SLURM_LOCALID=1"},
    (char[]){"SLURM_STEP_TASKS_PER_NODE=2(x3)"},
    NULL,
};

static const char *get(const void *context, const char *name)
{
    return ct_env_get(context, name);
}

static char *read_conf(const void *context, const char *path)
{
    return ct_strdup(strcmp(path, "/etc/slurm/slurm.conf") == 0 ? "KillWait=60\n" : "");
}

static struct batch_source source_of(const struct ct_env *env)
{
    return (struct batch_source){get, read_conf, env, "node2", 1};
}

static int read_place(struct batch_place *out, const struct ct_env *env,
                      struct ctrun_error *err)
{
    const struct batch_source source = source_of(env);

    return batch_find(out, &source, err);
}

TEST(a_step_tells_its_own_nodes_not_the_jobs)
{
    struct batch_place place;
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, step), 0);
    assert_int_equal(read_place(&place, &env, NULL), 1);
    assert_string_equal(place.system, "Slurm");
    assert_string_equal(place.run_id, "slurm-4.0");
    assert_int_equal(place.nodes.count, 3);
    assert_string_equal(place.nodes.names[place.node_id], "node2");
    assert_int_equal(place.tasks[place.node_id], 2);
    assert_int_equal(place.local_id, 1);
    assert_int_equal(batch_task_index(&place), 3);
    assert_int_equal(batch_task_count(&place), 6);
    batch_place_deinit(&place);
    assert_int_equal(ct_env_set(&env, "SLURM_RESTART_COUNT", "2"), 0);
    assert_int_equal(read_place(&place, &env, NULL), 1);
    assert_string_equal(place.run_id, "slurm-4.0.2"); /* a requeued job is a new run */
    assert_int_equal(place.requeues, 2);
    batch_place_deinit(&place);
    ct_env_deinit(&env);
}

/* The other tasks wait for this one, so a lack of memory must not make it look like a step of
 * another batch system. */
TEST(a_step_that_finds_no_memory_says_so)
{
    struct batch_place place;
    struct ctrun_error err;
    struct ct_env env;
    int rc = 0;

    assert_int_equal(ct_env_init(&env, step), 0);
    for (size_t n = 1; rc != 1; n++) {
        ct_alloc_fail_at(n);
        rc = read_place(&place, &env, &err);
        ct_alloc_fail_at(0);
        assert_true(rc == 1 || rc == -ENOMEM);
        assert_true(rc == 1 || err.code == -ENOMEM);
    }
    batch_place_deinit(&place);
    ct_env_deinit(&env);
}

/* `-m cyclic` or a host file orders tasks differently; the workers of a node still get consecutive
 * ranks. */
TEST(tasks_are_counted_node_by_node)
{
    static const int first[] = {0, 2, 4, 6};
    struct batch_place place;
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, step), 0);
    assert_int_equal(ct_env_set(&env, "SLURM_STEP_NODELIST", "node[1-4]"), 0);
    assert_int_equal(ct_env_set(&env, "SLURM_STEP_TASKS_PER_NODE", "2(x3),1"), 0);
    assert_int_equal(ct_env_set(&env, "SLURM_LOCALID", "0"), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ct_env_setf(&env, "SLURM_NODEID", "%d", i), 0);
        assert_int_equal(read_place(&place, &env, NULL), 1);
        assert_int_equal(batch_task_index(&place), first[i]);
        assert_int_equal(batch_task_count(&place), 7);
        batch_place_deinit(&place);
    }
    ct_env_deinit(&env);
}

TEST(outside_a_step_there_is_no_place)
{
    struct batch_place place;
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, step), 0);
    ct_env_remove(&env, "SLURM_STEP_ID"); /* a batch script, or salloc's shell */
    assert_int_equal(read_place(&place, &env, NULL), 0);
    ct_env_deinit(&env);
}

/* salloc's shell with LaunchParameters=use_interactive_step, before Slurm 26.11 and since; a batch script since. */
TEST(the_shell_and_the_script_of_a_job_are_no_step_of_srun)
{
    static const char *const ids[] = {"4294967290", "-6", "-5"};
    struct batch_source source;
    struct batch_place place;
    struct ctrun_error err;
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, step), 0);
    assert_int_equal(ct_env_set(&env, "SLURM_NNODES", "4"), 0);
    source = source_of(&env);
    assert_int_equal(slurm_nodes_without_step(&source), 0);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_int_equal(ct_env_set(&env, "SLURM_STEP_ID", ids[i]), 0);
        assert_int_equal(read_place(&place, &env, &err), 0);
        assert_int_equal(slurm_nodes_without_step(&source), 4);
    }
    assert_int_equal(ct_env_set(&env, "SLURM_STEP_ID", "x"), 0);
    assert_int_equal(read_place(&place, &env, &err), CTRUN_E_BAD_ENVIRONMENT);
    ct_env_deinit(&env);
}

TEST(the_kill_wait_is_that_of_slurms_configuration)
{
    static const struct {
        const char *conf;
        uint32_t seconds;
    } rows[] = {
        {"KillWait=60\n", 60},
        {"# KillWait=7\nClusterName=x\n  killwait = 120 # site\n", 120},
        {"InactiveLimit=0 \nMinJobAge=300\n", 30},
        {"KillWaitX=5\nKillWait=\n", 30},
        {"KillWait=99999999999999999999\n", 30},
        {"", 30},
    };
    struct batch_source source;
    struct ct_env env;
    int64_t end_s;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(slurm_kill_wait(rows[i].conf), rows[i].seconds);
    assert_int_equal(ct_env_init(&env, step), 0);
    source = source_of(&env);
    assert_int_equal(slurm_grace(&source), 60);
    assert_int_equal(slurm_end(&source), 0);
    assert_int_equal(ct_env_set(&env, "SLURM_JOB_END_TIME", "1800000000"), 0);
    assert_int_equal(slurm_end(&source), 1800000000);
    assert_int_equal(ct_env_set(&env, "SLURM_JOB_END_TIME", "x"), 0);
    assert_int_equal(slurm_end(&source), 0);
    assert_int_equal(batch_end(&end_s, &source, NULL), 0);
    assert_int_equal(end_s, 0);
    assert_int_equal(ct_env_set(&env, "SLURM_JOB_END_TIME", "1800000000"), 0);
    assert_int_equal(batch_end(&end_s, &source, NULL), 0);
    assert_int_equal(end_s, 1800000000);
    assert_int_equal(ct_env_set(&env, "CTRUN_END_TIME", "1900000000"), 0);
    assert_int_equal(batch_end(&end_s, &source, NULL), 0);
    assert_int_equal(end_s, 1900000000);
    assert_int_equal(ct_env_set(&env, "CTRUN_END_TIME", "-1"), 0);
    assert_int_equal(batch_end(&end_s, &source, NULL), CTRUN_E_BAD_ENVIRONMENT);
    ct_env_remove(&env, "SLURM_JOB_ID"); /* no job, so no KillWait */
    assert_int_equal(slurm_grace(&source), 0);
    ct_env_deinit(&env);
}

TEST(contradictions_name_their_variable)
{
    static const struct {
        const char *name;
        const char *value;
    } bad[] = {
        {"SLURM_NODEID", "3"},
        {"SLURM_NODEID", "x"},
        {"SLURM_STEP_NODELIST", "n[1"},
        {"SLURM_STEP_TASKS_PER_NODE", "2(x1)"},
        {"SLURM_JOB_ID", ""},
        {"SLURM_LOCALID", "-1"},
        {"SLURM_STEP_NODELIST", "gpu-[01-02]x"},
    };
    struct batch_place place;
    struct ctrun_error err;
    struct ct_env env;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ct_env_init(&env, step), 0);
        assert_int_equal(ct_env_set(&env, bad[i].name, bad[i].value), 0);
        assert_int_equal(read_place(&place, &env, &err), CTRUN_E_BAD_ENVIRONMENT);
        assert_non_null(strstr(err.text, bad[i].name));
        ct_env_deinit(&env);
    }
}

TEST(per_node_lists_repeat)
{
    static const char *const bad[] = {"", "2(x", "2(3)", "a", "1,,2", "2(x0)", "1"};
    static const int expected[] = {8, 3, 1, 1, 1, 1, 1, 1};
    int values[9];

    assert_int_equal(slurm_per_node("8,3,1(x6)", values, 8), 0);
    assert_memory_equal(values, expected, sizeof expected);
    assert_true(slurm_per_node("8,3,1(x6)", values, 9) < 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(slurm_per_node(bad[i], values, 2) < 0);
}

TEST(ports_are_distinct_and_below_the_ephemeral_range)
{
    struct batch_place place;
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, step), 0);
    for (int job = 1; job < 3000; job += 7) {
        assert_int_equal(ct_env_setf(&env, "SLURM_JOB_ID", "%d", job), 0);
        assert_int_equal(read_place(&place, &env, NULL), 1);
        for (int i = 0; i < BATCH_PORTS; i++) {
            assert_in_range(place.ports[i], 20000, 28999);
            for (int k = 0; k < i; k++)
                assert_int_not_equal(place.ports[i], place.ports[k]);
        }
        batch_place_deinit(&place);
    }
    ct_env_deinit(&env);
}
