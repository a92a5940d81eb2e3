/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/plan.h"

#include <errno.h>

#include "launcher/config/torch_env.h"
#include "launcher/config/jax_env.h"
#include "launcher/hardware/devices.h"
#include "launcher/options/template.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* LOCAL_RANK before --virtual-local-rank. The number continues over the tasks of a node when a
 * batch system starts one task for each rank. */
static int local_id(const struct config *config, int local_rank)
{
    return config->run.task.local_id + local_rank;
}

/* True when the worker sees one GPU, as its GPU 0: with --virtual-local-rank, or when the batch
 * system gives each task one GPU. */
static bool sees_one_gpu(const struct config *config)
{
    const char *cuda = ct_env_find(config->env, "CUDA_VISIBLE_DEVICES");

    return config->work.virtual_local_rank ||
           (config->run.task.is_rank && config->run.task.local_count > 1 && cuda &&
            devices_visible_count(cuda) == 1);
}

char **plan_argv(const struct config *config, int local_rank)
{
    const struct program *program = config_program(config, local_rank);
    char number[16];
    const struct template_name names[] = {{"local_rank", number}, {NULL, NULL}};
    size_t count = 0;
    size_t at = 0;
    char **argv;

    (void)ct_format(number, sizeof number, "%d", local_id(config, local_rank));
    while (program->args[count])
        count++;
    if (!(argv = ct_zalloc_array(count + PROGRAM_HEAD_MAX + 3, sizeof *argv)) ||
        !(argv[at++] = ct_strdup(program->path)))
        goto fail;
    for (int i = 0; i < PROGRAM_HEAD_MAX && program->head[i]; i++)
        if (!(argv[at++] = ct_strdup(program->head[i])))
            goto fail;
    for (size_t i = 0; i <= count; i++) {
        if ((int)i == program->local_rank_at &&
            !(argv[at++] = template_substitute("--local-rank=${local_rank}", names)))
            goto fail;
        if (i < count && !(argv[at++] = template_substitute(program->args[i], names)))
            goto fail;
    }
    return argv;
fail:
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
    return NULL;
}

/* One device per worker: entry `local_rank` of the launcher's own list, or the rank
 * itself. */
static int set_virtual_device(struct ct_env *env, const struct config *config,
                              int local_rank)
{
    const char *hip = ct_env_find(config->env, "HIP_VISIBLE_DEVICES");
    const char *cuda = ct_env_find(config->env, "CUDA_VISIBLE_DEVICES");
    bool has_hip = hip && *hip;
    const char *list = has_hip ? hip : cuda;
    char entry[256];
    int rc;

    if (list && !*list)
        return 0; /* empty: hides all devices */
    if (!list)
        return ct_env_setf(env, "CUDA_VISIBLE_DEVICES", "%d",
                           local_id(config, local_rank));
    if ((rc = devices_visible_entry(list,
                                    config->run.task.is_rank &&
                                            devices_visible_count(list) == 1
                                        ? 0
                                        : local_id(config, local_rank),
                                    entry, sizeof entry)) < 0)
        return rc; /* impossible: config_resolve() has checked it */
    if (has_hip && (rc = ct_env_set(env, "HIP_VISIBLE_DEVICES", entry)) < 0)
        return rc;
    return ct_env_set(env, "CUDA_VISIBLE_DEVICES", entry);
}

/* Rank 0 serves JAX's coordinator at MASTER_PORT + 1, which its node has reserved. */
static int set_jax(struct ct_env *env, const struct config *config,
                   const struct ct_start *start, int local_rank)
{
    const struct config_task *task = &config->run.task;
    const struct jax_place place = {
        .rank = start->rank_base + (uint64_t)local_rank,
        .world_size = start->world_size,
        .local_rank = sees_one_gpu(config) ? 0 : (uint64_t)local_id(config, local_rank),
        .nodes = task->is_rank ? (uint64_t)task->node_count : start->group_world_size,
        .coordinator = start->master_addr,
        .port = (uint16_t)(start->master_port + 1),
    };

    return config->work.has_jax ? jax_env_set(env, &place) : 0;
}

static int set_numbers(struct ct_env *env, const struct config *config,
                       const struct ct_start *start, const struct ct_role_at *role,
                       int local_rank)
{
    const struct config_task *task = &config->run.task;
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {CT_ENV_LOCAL_RANK,
         sees_one_gpu(config) ? 0 : (uint64_t)local_id(config, local_rank)},
        {CT_ENV_RANK, start->rank_base + (uint64_t)local_rank},
        {CT_ENV_GROUP_RANK,
         task->is_rank ? (uint64_t)task->node_id : start->group_rank},
        {CT_ENV_ROLE_RANK, role->rank},
        {CT_ENV_LOCAL_WORLD_SIZE,
         (uint64_t)(task->is_rank ? task->local_count : config->run.nproc)},
        {CT_ENV_WORLD_SIZE, start->world_size},
        {CT_ENV_GROUP_WORLD_SIZE,
         task->is_rank ? (uint64_t)task->node_count : start->group_world_size},
        {CT_ENV_ROLE_WORLD_SIZE, role->world_size},
        {CT_ENV_MASTER_PORT, start->master_port},
        {CT_ENV_RESTART_COUNT, start->restart_count},
        {CT_ENV_MAX_RESTARTS, config->run.max_restarts},
        {CT_ENV_GENERATION, start->generation},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int rc = ct_env_setf(env, numbers[i].name, "%llu",
                             (unsigned long long)numbers[i].value);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* What the worker may do when another worker is lost. Removes the values of an outer ctrun. */
static int set_survival(struct ct_env *out, const struct stop_config *stop)
{
    int rc = 0;

    ct_env_remove(out, CT_ENV_MAY_SHRINK);
    ct_env_remove(out, CT_ENV_MAY_GROW);
    ct_env_remove(out, CT_ENV_MAY_REFORM);
    if (stop->survive_ms)
        rc = ct_env_set(out, CT_ENV_MAY_SHRINK, "1");
    if (rc == 0 && stop->frees_peers)
        rc = ct_env_set(out, CT_ENV_MAY_REFORM, "1");
    if (rc == 0 && stop->survive_replace)
        rc = ct_env_set(out, CT_ENV_MAY_GROW, "1");
    return rc;
}

/* Where the user has not set them, even to an empty value. */
static int set_defaults(struct ct_env *out, char *const *env)
{
    static const char *const names[] = {CT_ENV_NCCL_ASYNC, CT_ENV_FAULTHANDLER,
                                        CT_ENV_UNBUFFERED};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        if (!ct_env_find(env, names[i]))
            rc = ct_env_set(out, names[i], "1");
    return rc;
}

int plan_environment(struct ct_env *out, const struct config *config,
                     const struct ct_start *start, int local_rank,
                     const char *error_file)
{
    struct ct_role_at role;
    int rc;

    config_role_at(&role, config, start, local_rank);
    if ((rc = ct_env_init(out, config->env)) < 0)
        return rc;
    ct_env_remove(out, ETCD_ENV_PASSWORD); /* workers need no etcd */
    if ((rc = set_numbers(out, config, start, &role, local_rank)) < 0 ||
        (rc = ct_env_set(out, CT_ENV_ROLE_NAME, role.name)) < 0 ||
        (rc = ct_env_set(out, CT_ENV_MASTER_ADDR, start->master_addr)) < 0 ||
        (rc = ct_env_set(out, CT_ENV_RUN_ID, config->run.run_id)) < 0 ||
        (rc = ct_env_set(out, CT_ENV_USE_AGENT_STORE,
                         config->rdzv.worker_serves ? "False" : "True")) < 0 ||
        (rc = set_defaults(out, config->env)) < 0 ||
        (rc = torch_env_set_older(out, config_program(config, local_rank), config->env,
                                  config->stop.hang_timeout_ms ||
                                      config->stop.finds_stragglers)) < 0 ||
        (rc = ct_env_set(out, CT_ENV_SIGNALS, config->stop.signals_text)) < 0 ||
        (rc = ct_env_set(out, CT_ENV_ERROR_FILE, error_file ? error_file : "")) < 0)
        return rc;
    ct_env_remove(out, CT_ENV_ROLE_RESTART_COUNT); /* of an outer ctrun */
    if (config_role_restarts(config, local_rank) > 0 &&
        (rc = ct_env_set(out, CT_ENV_ROLE_RESTART_COUNT, "0")) < 0)
        return rc;
    if ((rc = set_survival(out, &config->stop)) < 0)
        return rc;
    if (*config->run.batch_task &&
        (rc = ct_env_set(out, CT_ENV_BATCH_TASK, config->run.batch_task)) < 0)
        return rc;
    if (config->work.placement.omp_threads > 0 &&
        (rc = ct_env_setf(out, CT_ENV_OMP_THREADS, "%d",
                          config->work.placement.omp_threads)) < 0)
        return rc;
    if (start->uses_gloo_scale && (rc = torch_env_set_gloo_scale(out)) < 0)
        return rc;
    if ((rc = nic_hints_set_env(&config->work.nics, out, local_rank)) < 0 ||
        (rc = set_jax(out, config, start, local_rank)) < 0)
        return rc;
    if (*config->work.timer_file &&
        (rc = ct_env_set(out, CT_ENV_TIMER_FILE, config->work.timer_file)) < 0)
        return rc;
    if (config->rdzv.net.count > 0 &&
        (rc = ct_env_set(out, CT_ENV_NET, config->rdzv.net_text)) < 0)
        return rc;
    if (config->rdzv.ports.first &&
        (rc = ct_env_set(out, CT_ENV_PORT_RANGE, config->rdzv.ports_text)) < 0)
        return rc;
    return config->work.virtual_local_rank ? set_virtual_device(out, config, local_rank)
                                           : 0;
}

/* Variables that differ between workers or rounds. The template does not have them, so that no
 * module reads a wrong value when it is imported. */
static const char *const own_names[] = {
    CT_ENV_RANK,
    CT_ENV_LOCAL_RANK,
    CT_ENV_GROUP_RANK,
    CT_ENV_ROLE_RANK,
    CT_ENV_ROLE_NAME,
    CT_ENV_WORLD_SIZE,
    CT_ENV_GROUP_WORLD_SIZE,
    CT_ENV_ROLE_WORLD_SIZE,
    CT_ENV_MASTER_ADDR,
    CT_ENV_MASTER_PORT,
    CT_ENV_RESTART_COUNT,
    CT_ENV_ERROR_FILE,
    CT_ENV_GENERATION,
    CT_ENV_ROLE_RESTART_COUNT,
};

/* With it torch.cuda.is_available() asks NVML and does not start CUDA, which fork() would break. */
static const char nvml_name[] = "PYTORCH_NVML_BASED_CUDA_CHECK";

int plan_template_environment(struct ct_env *out, const struct config *config)
{
    static const struct ct_start nowhere;
    int rc = plan_environment(out, config, &nowhere, 0, NULL);

    for (size_t i = 0; i < sizeof own_names / sizeof *own_names; i++)
        ct_env_remove(out, own_names[i]);
    if (config->work.has_jax)
        jax_env_remove(out);
    if (config->work.virtual_local_rank) {
        ct_env_remove(out, "CUDA_VISIBLE_DEVICES");
        ct_env_remove(out, "HIP_VISIBLE_DEVICES");
    }
    if (rc == 0 && !ct_env_get(out, nvml_name))
        rc = ct_env_set(out, nvml_name, "1");
    return rc;
}

char *plan_ranks_prefix(const struct config *config, const char *local_ranks,
                        const char *ranks, bool is_teed)
{
    const struct template_name names[] = {{"role_name", config->run.role},
                                          {"rank", ranks},
                                          {"local_rank", local_ranks},
                                          {"hostname", config->run.host},
                                          {NULL, NULL}};

    return template_substitute(is_teed ? config->output.prefix_template : "[${rank}] ",
                               names);
}

static char *make_prefix(const struct config *config, const struct ct_start *start,
                         const struct ct_role_at *role, int local_rank)
{
    char local[16];
    char rank[16];
    char role_rank[16];
    const struct template_name names[] = {
        {"rank", rank},
        {"local_rank", local},
        {"hostname", config->run.host},
        {"role_name", role->name},
        /* Replaced only with --role; else the word stays as typed, as with torchrun. */
        {config->run.roles.count > 0 ? "role_rank" : NULL, role_rank},
        {NULL, NULL}};

    (void)ct_format(local, sizeof local, "%d", local_id(config, local_rank));
    (void)ct_format(rank, sizeof rank, "%u", start->rank_base + (unsigned)local_rank);
    (void)ct_format(role_rank, sizeof role_rank, "%u", role->rank);
    return template_substitute(config->output.prefix_template, names);
}

/* One of six colours by local rank, readable on dark and light backgrounds. */
static const char *choose_paint(int local_rank)
{
    static const char *const paints[] = {"\033[36m", "\033[33m", "\033[32m",
                                         "\033[35m", "\033[34m", "\033[31m"};

    return paints[(size_t)local_rank % (sizeof paints / sizeof *paints)];
}

static bool is_teed(enum agent_stream stream)
{
    return stream == AGENT_STREAM_TEE || stream == AGENT_STREAM_FILE_ONLY_OF_TEE;
}

/* One error file for each start of the worker: a restart does not overwrite an earlier error. */
static char *error_path(const struct logdir *dir, int local_rank, int restarts)
{
    char name[48] = "error.json";

    if (restarts > 0)
        (void)ct_format(name, sizeof name, "error.restart_%d.json", restarts);
    return logdir_path(dir, local_rank, name);
}

/* Sets *out to a path when `wanted`; false when memory is short. */
static bool set_path(char **out, bool wanted, const struct logdir *dir, int local_rank,
                     const char *name)
{
    return !wanted || (*out = logdir_path(dir, local_rank, name));
}

static int plan_files(struct agent_worker_plan *out, const struct config *config,
                      struct logdir *dir, const struct ct_start *start, int local_rank,
                      struct ctrun_error *err)
{
    const int local = local_id(config, local_rank);
    struct ct_role_at role;
    int rc;

    config_role_at(&role, config, start, local_rank);
    out->out = streams_target(&config->output.streams, local, STREAM_STDOUT);
    out->err = streams_target(&config->output.streams, local, STREAM_STDERR);
    if (!dir) { /* no files */
        bool is_shown = config->output.streams.is_shown[local];

        out->out = out->err = is_shown ? AGENT_STREAM_CONSOLE : AGENT_STREAM_DROP;
        return 0;
    }
    if ((rc = logdir_enter(dir, start->generation, start->restart_count, local, err)) <
        0)
        return rc;
    out->out_paint = config->output.paints_out ? choose_paint(local) : NULL;
    out->err_paint = config->output.paints_err ? choose_paint(local) : NULL;
    if (!(out->prefix = make_prefix(config, start, &role, local_rank)) ||
        !(out->error_file = error_path(dir, local, out->restarts)) ||
        !set_path(&out->out_file, streams_has_file(out->out), dir, local,
                  "stdout.log") ||
        !set_path(&out->err_file, streams_has_file(out->err), dir, local,
                  "stderr.log") ||
        !set_path(&out->filtered_out_file,
                  is_teed(out->out) && config->output.out_filters[0], dir, -1,
                  "filtered_stdout.log") ||
        !set_path(&out->filtered_err_file,
                  is_teed(out->err) && config->output.err_filters[0], dir, -1,
                  "filtered_stderr.log"))
        return ct_fail(err, -ENOMEM, "log files in %.600s: out of memory",
                       dir->attempt);
    return 0;
}

static enum agent_input plan_input(const struct config *config,
                                   const struct ct_start *start, int local_rank)
{
    if (config->output.stdin_rank == CONFIG_STDIN_ALL)
        return AGENT_INPUT_SHARED;
    return (int64_t)start->rank_base + local_rank == config->output.stdin_rank
               ? AGENT_INPUT_SOLE
               : AGENT_INPUT_NONE;
}

int plan_worker(struct agent_worker_plan *out, const struct config *config,
                struct logdir *dir, const struct ct_start *start, int local_rank,
                struct ctrun_error *err)
{
    int rc;

    *out = (struct agent_worker_plan){
        .in = plan_input(config, start, local_rank),
        .may_restart = config_role_restarts(config, local_rank) > 0,
        .is_python = config_program(config, local_rank)->mode != PROGRAM_DIRECT,
        .restarts = out->restarts,
    };
    placement_bind(&out->bind, &config->work.placement,
                   config->run.task.place + local_rank);
    if ((rc = plan_files(out, config, dir, start, local_rank, err)) < 0)
        return rc;
    if (!(out->argv = plan_argv(config, local_rank)) ||
        plan_environment(&out->env, config, start, local_rank, out->error_file) < 0 ||
        ((out->restarts > 0 || start->is_new) && !out->may_restart &&
         ct_env_set(&out->env, CT_ENV_MAY_GROW, "new") < 0) ||
        (out->restarts > 0 && out->may_restart &&
         ct_env_setf(&out->env, CT_ENV_ROLE_RESTART_COUNT, "%d", out->restarts) < 0))
        return ct_fail(err, -ENOMEM, "worker %d: out of memory", local_rank);
    return 0;
}
