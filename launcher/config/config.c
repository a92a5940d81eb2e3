/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/config.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "agent/process/slurm_step.h"
#include "launcher/config/config_private.h"
#include "launcher/config/env_names.h"
#include "launcher/config/ha_config.h"
#include "launcher/config/program_warn.h"
#include "launcher/config/rdzv_resolve.h"
#include "launcher/config/random_id.h"
#include "launcher/config/host_slot.h"
#include "launcher/hardware/amd_gpus.h"
#include "launcher/hardware/devices.h"
#include "launcher/options/nproc_list.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

const char *config_backend_name(enum config_backend backend)
{
    static const char *const names[] = {"local", "static", "c10d", "etcd"};

    return names[backend];
}

int64_t config_time_left(const struct config *config)
{
    int64_t left = config->stop.end_s - (int64_t)time(NULL);

    return config->stop.end_s && left > 0 ? left : 0;
}

/* ---- Options of a later version: refused in one line, never ignored ------------------ */

static int refuse_unsupported(const struct options *options, struct ctrun_error *err)
{
    const char *handler = option_text(options, OPTION_EVENT_LOG_HANDLER);
    const char *method = option_text(options, OPTION_START_METHOD);
    const char *specs = option_text(options, OPTION_LOGS_SPECS);

    if (*specs && strcmp(specs, "default") != 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--logs-specs=%s: names a Python plug-in, which ctrun cannot load; use "
            "--log-dir, --redirects and --tee",
            specs);
    if (strcmp(handler, "null") != 0 && strcmp(handler, "dynamic_rendezvous") != 0 &&
        strcmp(handler, "console") != 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--event-log-handler=%s: not supported; console prints torchrun's events, "
            "CTRUN_EVENTS=FILE gets ctrun's as JSON lines",
            handler);
    if (strcmp(method, "spawn") != 0)
        ct_warn("--start-method=%s has no effect: workers are started by exec", method);
    return 0;
}

/* For a run of several workers without --jax. */
static bool lacks_jax(const struct config *config, const struct options *options)
{
    return options->values[OPTION_JAX].source == OPTION_FROM_DEFAULT &&
           config->run.roles.count == 0 && config->run.node_rank <= 0 &&
           (config->run.nproc > 1 || config->run.nodes.max > 1) &&
           program_calls_jax(&config->work.program);
}

static void warn_environment(const struct config *config, const struct options *options)
{
    const char *health = ct_env_find(config->env, "TORCHELASTIC_HEALTH_CHECK_PORT");

    if (health && *health && strcmp(health, "0") != 0)
        ct_warn("TORCHELASTIC_HEALTH_CHECK_PORT=%s is ignored: no health check server "
                "started",
                health);
    if (!host_slot_get()->is_given &&
        !config->run.task.is_quiet) { /* others print these */
        env_names_warn(config->env);
        if (config->rdzv.worker_serves && config->stop.survive_ms &&
            config->run.nodes.max > 1)
            ct_warn(CT_ENV_NO_SHARED_STORE
                    "=1: worker 0 serves the worker store: --survive continues without "
                    "other workers, but after the loss of a node all workers restart");
        program_warn(options);
        if (config->work.no_program.code == 0)
            program_warn_shell(&config->work.program);
    }
}

/* ---- Sizes and names ----------------------------------------------------------------- */

/* The GPUs of CUDA_VISIBLE_DEVICES, else as many as Slurm has given, else all: NVIDIA's, or AMD's where there are
 * none. */
static int count_gpus(const void *context)
{
    char *const *env = *(char *const *const *)context;
    const char *visible = ct_env_find(env, "CUDA_VISIBLE_DEVICES");
    const char *given = slurm_step_is_of_srun(ct_env_find(env, "SLURM_STEP_ID"))
                            ? ct_env_find(env, "SLURM_GPUS_ON_NODE")
                            : NULL;
    uint64_t count;
    int nvidia;

    if (!visible && given && ct_parse_u64(given, 0, NPROC_MAX, &count) == 0)
        return (int)count;
    nvidia = devices_gpu_count(visible);
    return visible || nvidia > 0
               ? nvidia
               : amd_gpus_count("/sys/class/kfd/kfd/topology/nodes", "/dev/dri", env);
}

static int count_cpus(const void *env)
{
    (void)env;
    return devices_cpu_count();
}

static int resolve_sizes(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const struct nproc_source source = {count_gpus, count_cpus, &out->env};
    const struct option_value *restarts = &options->values[OPTION_MAX_RESTARTS];
    const char *nproc = option_text(options, OPTION_NPROC_PER_NODE);
    int rc;

    rc = nnodes_parse(option_text(options, OPTION_NNODES), &out->run.nodes, err);
    if (rc == 0)
        rc = config_roles_resolve(out, options, err);
    if (rc == 0 && out->run.roles.count == 0 &&
        !nproc_list_is(nproc)) /* else set once our place is known */
        rc = nproc_parse(nproc, &source, &out->run.nproc, err);
    if (rc < 0)
        return rc;
    if (out->run.nproc && out->run.roles.count == 0 &&
        strspn(nproc, "abcdefghijklmnopqrstuvwxyz"))
        ct_info("nproc_per_node=%s: %d workers", nproc, out->run.nproc);
    if (restarts->integer < 0 || restarts->integer > INT32_MAX)
        return ct_fail(err, -EINVAL,
                       "--max-restarts=%s: max_restarts must be >= 0 and at most %d",
                       restarts->text, INT32_MAX);
    out->run.max_restarts = (uint32_t)restarts->integer;
    if (!(options->values[OPTION_MONITOR_INTERVAL].number > 0))
        return ct_fail(err, -EINVAL, "--monitor-interval=%s: must be > 0",
                       option_text(options, OPTION_MONITOR_INTERVAL));
    return 0;
}

/* Our place in the list of --nproc-per-node; -1: not known before the nodes meet. */
static int place_in_list(const struct config *config)
{
    if (config->run.node_rank >= 0)
        return config->run.node_rank;
    return config->run.node_id < 0 && config->run.nodes.max == 1 ? 0
                                                                 : config->run.node_id;
}

static int resolve_list(struct config *out, const struct options *options,
                        struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_NPROC_PER_NODE);
    const int place = place_in_list(out);
    int listed;
    int rc;

    if (!nproc_list_is(text))
        return 0;
    if ((listed = nproc_list_read(text, place, &out->run.nproc, err)) < 0)
        return listed;
    if (place < 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--nproc-per-node=%s: a list needs the number of this node: give "
            "it by srun or another batch system, by --hosts, or by "
            "--node-rank with --rdzv-backend=static",
            text);
    if ((rc = nproc_list_check(text, listed,
                               host_slot_get()->is_given ? out->run.node_count
                                                         : out->run.nodes.max,
                               out->run.node_count, err)) < 0)
        return rc;
    if (out->run.nproc == 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--nproc-per-node=%s: is for %d node%s, and this is node %d, "
                       "counted from 0",
                       text, listed, listed == 1 ? "" : "s", place);
    ct_info("nproc_per_node=%s: %d workers on node %d", text, out->run.nproc, place);
    return 0;
}

/* A run id of the batch system wins over a random one; a typed run id wins in rdzv_batch.c,
 * which then makes none. */
static int resolve_names(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const char *role = option_text(options, OPTION_ROLE);
    const char *id = option_has_text(options, OPTION_RDZV_ID)
                         ? option_text(options, OPTION_RDZV_ID)
                         : option_table[OPTION_RDZV_ID].fallback;
    bool keeps_id = option_has_text(options, OPTION_RDZV_ID) ||
                    out->rdzv.backend != CONFIG_LOCAL;
    struct ct_endpoint local;

    if (gethostname(out->run.host, sizeof out->run.host) < 0)
        (void)ct_copy(out->run.host, sizeof out->run.host, "localhost");
    out->run.host[sizeof out->run.host - 1] = '\0';
    if (out->run.roles.count == 0 &&
        ct_copy(out->run.role, sizeof out->run.role, role) < 0)
        return ct_fail(err, -EINVAL, "--role: '%.40s...' is longer than %d bytes", role,
                       CT_ROLE_MAX - 1);
    if (ct_copy(out->rdzv.local_addr, sizeof out->rdzv.local_addr,
                option_text(options, OPTION_LOCAL_ADDR)) < 0)
        return ct_fail(err, -EINVAL, "--local-addr: longer than a host name can be");
    if (ct_endpoint_parse(out->rdzv.local_addr, &local, err) < 0)
        return ct_wrap(err, "--local-addr"), err->code;
    out->run.has_run_id = *out->run.run_id || option_has_text(options, OPTION_RDZV_ID);
    out->run.has_size = option_has_text(options, OPTION_NNODES) || out->run.sized_by ||
                        out->run.batch_system || host_slot_get()->is_given;
    if (*out->run.run_id)
        return 0; /* the batch system's */
    if (options->values[OPTION_STANDALONE].is_on || !keeps_id)
        return random_id_make(out->run.run_id, sizeof out->run.run_id, err);
    if (ct_copy(out->run.run_id, sizeof out->run.run_id, id) < 0)
        return ct_fail(err, -EINVAL, "--rdzv-id: '%.40s...' is longer than %d bytes",
                       id, CT_RUN_ID_MAX - 1);
    ct_make_plain(out->run.run_id,
                  false); /* as the server reads it: "job\r" of a file from Windows */
    return 0;
}

static int resolve_unit(struct config *out, const struct options *options,
                        struct ctrun_error *err)
{
    const struct option_value *unit = &options->values[OPTION_NODE_UNIT];
    const int64_t usable = unit->integer > 0
                               ? out->run.nodes.max - out->run.nodes.max % unit->integer
                               : 0;

    if (usable < out->run.nodes.min)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--node-unit=%s: no multiple of it is within --nnodes=%d:%d",
                       unit->text ? unit->text : "0", out->run.nodes.min,
                       out->run.nodes.max);
    out->run.node_unit = (uint32_t)unit->integer;
    return 0;
}

/* Resolves the run before and after the rendezvous: rdzv_resolve() may change the sizes (static
 * waits for all nodes, a batch system knows them) and sets this node's place, which a list of
 * --nproc-per-node needs. */
static int resolve_run(struct config *out, const struct options *options,
                       struct ctrun_error *err)
{
    const struct rdzv_target to = {&out->run, &out->rdzv, out->env};
    int rc;

    if ((rc = resolve_sizes(out, options, err)) < 0 ||
        (rc = rdzv_resolve(&to, options, err)) < 0 ||
        (rc = ha_config_resolve(&to, options, err)) < 0 ||
        (rc = resolve_list(out, options, err)) < 0 ||
        (rc = resolve_names(out, options, err)) < 0)
        return rc;
    return resolve_unit(out, options, err);
}

/* Without a program this node cannot run, and a run that needs exactly its number of nodes cannot start. The others
 * would wait for this node in vain, so it joins and reports the error. */
static bool reports_later(const struct config *config, const struct options *options,
                          int rc)
{
    return (rc == CTRUN_E_EXEC || rc == -ENOEXEC) && config->run.nodes.max > 1 &&
           config->run.nodes.min == config->run.nodes.max &&
           config->run.roles.count == 0 &&
           !host_slot_get()->is_given && /* ssh has the exit status of each host */
           !options->values[OPTION_DRY_RUN].is_on &&
           !options->values[OPTION_PRINT_CONFIG].is_on;
}

static int find_programs(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    struct ctrun_error found = {0};
    int rc;

    if (out->run.roles.count > 0)
        return config_roles_find_programs(out, options, err);
    rc = program_resolve(&out->work.program, options, out->env, &found);
    if (rc < 0 && reports_later(out, options, rc)) {
        out->work.program.name = options->program[0];
        out->work.no_program = found;
        return 0;
    }
    if (rc < 0)
        (void)ct_fail(err, rc, "%s", found.text);
    return rc;
}

/* One resolver for each part. Binding to CPUs needs the number of workers; programs come last.
 * After a failure config_deinit() frees the parts that were made. */
int config_resolve(struct config *out, const struct options *options, char *const *env,
                   struct ctrun_error *err)
{
    int rc;

    out->env = env;
    out->run.node_id = -1;
    if ((rc = refuse_unsupported(options, err)) < 0 ||
        (rc = resolve_run(out, options, err)) < 0 ||
        (rc = stop_config_resolve(&out->stop, options, env, &out->run,
                                  out->rdzv.join_timeout_ms, err)) < 0 ||
        (rc = output_config_resolve(&out->output, options, env, &out->run, err)) < 0 ||
        (rc = work_config_resolve(&out->work, options, env, &out->run, err)) < 0 ||
        (rc = find_programs(out, options, err)) < 0)
        return rc;
    warn_environment(out, options);
    out->work.lacks_jax = !out->run.task.is_quiet && lacks_jax(out, options);
    return 0;
}

void config_deinit(struct config *config)
{
    stop_config_deinit(&config->stop);
    output_config_deinit(&config->output);
    config_roles_deinit(config);
    hostlist_deinit(&config->run.expected);
    free(config->run.expected_tasks);
    ct_auth_token_wipe(&config->rdzv.token);
    etcd_config_wipe(&config->rdzv.etcd);
    work_config_deinit(&config->work);
}
