/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "launcher/config_private.h"
#include "launcher/devices.h"
#include "launcher/meet.h"
#include "launcher/nproc_list.h"
#include "launcher/seat.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

const char *config_backend_name(enum config_backend backend)
{
    static const char *const names[] = {"local", "static", "c10d", "etcd"};

    return names[backend];
}

int64_t config_time_left(const struct config *config)
{
    int64_t left = config->end_s - (int64_t)time(NULL);

    return config->end_s && left > 0 ? left : 0;
}

/* ---- What comes with a later version: said in one line, never ignored ---------------- */

static int refuse_unsupported(const struct options *options, struct ctrun_error *err)
{
    const char *handler = option_text(options, OPTION_EVENT_LOG_HANDLER);
    const char *method = option_text(options, OPTION_START_METHOD);

    if (option_has_text(options, OPTION_LOGS_SPECS))
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--logs-specs=%s: names a Python plug-in, which ctrun cannot load; use "
            "--log-dir, --redirects and --tee",
            option_text(options, OPTION_LOGS_SPECS));
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

static void warn_environment(char *const *env)
{
    static const struct {
        const char *name;
        const char *why;
    } names[] = {
        {"TORCHELASTIC_HEALTH_CHECK_PORT", "no health check server started"},
        {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
         "no need: each round has a worker store of its own"},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = ct_env_find(env, names[i].name);

        if (value && strtod(value, NULL) > 0)
            ct_warn("%s=%s is ignored: %s", names[i].name, value, names[i].why);
    }
}

/* ---- Sizes and names ----------------------------------------------------------------- */

/* What we may use, what Slurm has given us, what is there. */
static int count_gpus(const void *context)
{
    char *const *env = *(char *const *const *)context;
    const char *visible = ct_env_find(env, "CUDA_VISIBLE_DEVICES");
    const char *given = ct_env_find(env, "SLURM_STEP_ID")
                            ? ct_env_find(env, "SLURM_GPUS_ON_NODE")
                            : NULL;
    uint64_t count;

    if (!visible && given && ct_parse_u64(given, 0, NPROC_MAX, &count) == 0)
        return (int)count;
    return devices_gpu_count(visible);
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

    rc = nnodes_parse(option_text(options, OPTION_NNODES), &out->nodes, err);
    if (rc == 0)
        rc = config_roles_resolve(out, options, err);
    if (rc == 0 && out->roles.count == 0 &&
        !nproc_list_is(nproc)) /* else once our place is known */
        rc = nproc_parse(nproc, &source, &out->nproc, err);
    if (rc < 0)
        return rc;
    if (out->nproc && out->roles.count == 0 &&
        strspn(nproc, "abcdefghijklmnopqrstuvwxyz"))
        ct_info("nproc_per_node=%s: %d workers", nproc, out->nproc);
    if (restarts->integer < 0 || restarts->integer > INT32_MAX)
        return ct_fail(err, -EINVAL, "--max-restarts=%s: max_restarts must be >= 0",
                       restarts->text);
    out->max_restarts = (uint32_t)restarts->integer;
    if (!(options->values[OPTION_MONITOR_INTERVAL].number > 0))
        return ct_fail(err, -EINVAL, "--monitor-interval=%s: must be > 0",
                       option_text(options, OPTION_MONITOR_INTERVAL));
    return 0;
}

/* Our place in the list of --nproc-per-node; -1: nobody has told it before the nodes meet. */
static int place_in_list(const struct config *config)
{
    if (config->node_rank >= 0)
        return config->node_rank;
    return config->node_id < 0 && config->nodes.max == 1 ? 0 : config->node_id;
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
    if ((listed = nproc_list_read(text, place, &out->nproc, err)) < 0)
        return listed;
    if (place < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--nproc-per-node=%s: which node this is must be known for a "
                       "list: from srun or its like, --hosts, or --node-rank "
                       "with --rdzv-backend=static",
                       text);
    if ((rc = nproc_list_check(text, listed,
                               seat_get()->is_given ? out->node_count : out->nodes.max,
                               out->node_count, err)) < 0)
        return rc;
    if (out->nproc == 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--nproc-per-node=%s: is for %d node%s, and this is node %d, "
                       "counted from 0",
                       text, listed, listed == 1 ? "" : "s", place);
    ct_info("nproc_per_node=%s: %d workers on node %d", text, out->nproc, place);
    return 0;
}

/* A version 4 UUID, as torchrun gives to a run that has no other name. */
static int make_run_id(char *dst, size_t size, struct ctrun_error *err)
{
    uint8_t b[16];

    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return ct_fail(err, -errno, "run id: no random bytes");
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    (void)ct_format(
        dst, size,
        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
        b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
        b[13], b[14], b[15]);
    return 0;
}

static int resolve_names(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const char *role = option_text(options, OPTION_ROLE);
    const char *id = option_text(options, OPTION_RDZV_ID);
    bool keeps_id = option_has_text(options, OPTION_RDZV_ID) ||
                    out->backend != CONFIG_LOCAL;

    if (gethostname(out->host, sizeof out->host) < 0)
        (void)ct_copy(out->host, sizeof out->host, "localhost");
    out->host[sizeof out->host - 1] = '\0';
    if (out->roles.count == 0 && ct_copy(out->role, sizeof out->role, role) < 0)
        return ct_fail(err, -EINVAL, "--role: '%.40s...' is longer than %d bytes", role,
                       CT_ROLE_MAX - 1);
    if (ct_copy(out->local_addr, sizeof out->local_addr,
                option_text(options, OPTION_LOCAL_ADDR)) < 0)
        return ct_fail(err, -EINVAL, "--local-addr: longer than a host name can be");
    if (*out->run_id)
        return 0; /* the batch system's */
    if (options->values[OPTION_STANDALONE].is_on || !keeps_id)
        return make_run_id(out->run_id, sizeof out->run_id, err);
    if (ct_copy(out->run_id, sizeof out->run_id, id) < 0)
        return ct_fail(err, -EINVAL, "--rdzv-id: '%.40s...' is longer than %d bytes",
                       id, CT_RUN_ID_MAX - 1);
    return 0;
}

static int resolve_unit(struct config *out, const struct options *options,
                        struct ctrun_error *err)
{
    const struct option_value *unit = &options->values[OPTION_NODE_UNIT];
    const int64_t usable = unit->integer > 0
                               ? out->nodes.max - out->nodes.max % unit->integer
                               : 0;

    if (usable < out->nodes.min)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--node-unit=%s: no multiple of it is within --nnodes=%d:%d",
                       unit->text ? unit->text : "0", out->nodes.min, out->nodes.max);
    out->node_unit = (uint32_t)unit->integer;
    return 0;
}

/* ---- Addresses ----------------------------------------------------------------------- */

static int resolve_net(struct config *out, const struct options *options,
                       struct ctrun_error *err)
{
    out->net_text = option_text(options, OPTION_NET);
    out->ports_text = option_text(options, OPTION_PORT_RANGE);
    if (ct_net_parse(out->net_text, &out->net, err) < 0)
        return ct_wrap(err, "--net");
    if (ct_port_range_parse(out->ports_text, &out->ports, err) < 0)
        return ct_wrap(err, "--port-range");
    return 0;
}

/* ---- Workers ------------------------------------------------------------------------- */

/* On when the variable is exactly "1". */
static int resolve_timer(struct config *out, struct ctrun_error *err)
{
    const char *is_on = ct_env_find(out->env, "TORCHELASTIC_ENABLE_FILE_TIMER");
    const char *path = ct_env_find(out->env, CT_ENV_TIMER_FILE);
    const char *folder = ct_env_find(out->env, "TMPDIR");
    char id[64];
    int rc;

    if (!is_on || strcmp(is_on, "1") != 0)
        return 0;
    if ((rc = make_run_id(id, sizeof id, err)) < 0)
        return rc;
    if (path && *path)
        rc = ct_copy(out->timer_file, sizeof out->timer_file, path);
    else
        rc = ct_format(out->timer_file, sizeof out->timer_file, "%s/watchdog_timer_%s",
                       folder && *folder ? folder : "/tmp", id);
    return rc < 0 ? ct_fail(err, rc, "file timer: the path is too long") : 0;
}

static int check_devices(const struct config *config, struct ctrun_error *err)
{
    const char *name = "HIP_VISIBLE_DEVICES";
    const char *visible = ct_env_find(config->env, name);
    char entry[256];

    if (!config->virtual_local_rank)
        return 0;
    if (!visible || !*visible)
        visible = ct_env_find(config->env, name = "CUDA_VISIBLE_DEVICES");
    if (!visible || !*visible)
        return 0;
    for (int i = 0; i < config->nproc; i++)
        if (devices_visible_entry(visible, i, entry, sizeof entry) < 0)
            return ct_fail(
                err, CTRUN_E_RESOURCES,
                "--virtual-local-rank: local_rank %d exceeds available GPUs in "
                "%s=%s",
                i, name, visible);
    return 0;
}

/* Workers that are placed together. A task that is a rank knows its own alone; where its CPUs are
 * not for it alone, or the GPUs of all are to be seen, it counts the others of its node. */
static int count_placed(struct config *config, const struct options *options)
{
    const struct config_task *task = &config->task;
    const char *visible = ct_env_find(config->env, "CUDA_VISIBLE_DEVICES");
    int cpus = devices_cpu_count();
    bool is_bound = option_has_text(options, OPTION_NUMA_BINDING);

    if (!task->is_rank)
        return config->nproc;
    if (is_bound ? visible && devices_visible_count(visible) < task->local_count
                 : cpus * task->local_count <= devices_online_cpu_count())
        return 1;
    config->task.place = is_bound ? task->local_id : 0;
    return is_bound || cpus >= task->local_count ? task->local_count : cpus;
}

static int resolve_pmi(struct config *out, const struct options *options,
                       struct ctrun_error *err)
{
    out->serves_pmi = options->values[OPTION_PMI].is_on;
    if (out->serves_pmi && out->nodes.max > 1)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--pmi: serves the workers of one node, and this run may have "
                       "%d; start MPI programs of several nodes by srun or mpiexec",
                       out->nodes.max);
    return 0;
}

/* Found where they are used, or shown: NVML may have to be loaded. */
static int resolve_nics(struct config *out, const struct options *options,
                        struct ctrun_error *err)
{
    const bool is_used = options->values[OPTION_NIC_AFFINITY].is_on;
    const char *visible = ct_env_find(out->env, "CUDA_VISIBLE_DEVICES");
    struct gpus all;
    struct gpus gpus;
    int first;

    if (!is_used && !options->values[OPTION_DRY_RUN].is_on)
        return 0;
    gpus_find(&all);
    if (gpus_select(&gpus, &all, visible, NULL) < 0)
        gpus.count = 0; /* CUDA would see none, or others than are meant */
    if (gpus.count == 0) {
        if (is_used)
            ct_warn("--nic-affinity has no effect on %s: no GPU is visible", out->host);
        return 0;
    }
    first = out->task.is_rank && gpus.count > 1 ? out->task.local_id : 0;
    if (nic_hints_fill(&out->nics, "/sys", &gpus, first, out->nproc) < 0)
        return ct_fail(err, -ENOMEM, "--nic-affinity: out of memory");
    out->nics.sets_env = is_used;
    if (is_used && !nic_hints_has_hca(&out->nics))
        ct_warn(
            "--nic-affinity has no effect on %s: no InfiniBand or RoCE device is on "
            "its PCI buses",
            out->host);
    else if (is_used && ct_env_find(out->env, "NCCL_IB_HCA"))
        ct_warn("--nic-affinity: NCCL_IB_HCA is set, and stays as it is");
    return 0;
}

int config_resolve(struct config *out, const struct options *options, char *const *env,
                   struct ctrun_error *err)
{
    int rc;

    *out = (struct config){.env = env, .node_id = -1};
    out->virtual_local_rank = options->values[OPTION_VIRTUAL_LOCAL_RANK].is_on;
    out->prints_torch_events = strcmp(option_text(options, OPTION_EVENT_LOG_HANDLER),
                                      "console") == 0;
    out->torchrun_exit_code = strcmp(option_text(options, OPTION_EXIT_CODE),
                                     "torchrun") == 0;
    if ((rc = refuse_unsupported(options, err)) < 0 ||
        (rc = resolve_sizes(out, options, err)) < 0 ||
        (rc = resolve_net(out, options, err)) < 0 ||
        (rc = meet_resolve(out, options, err)) < 0 ||
        (rc = resolve_list(out, options, err)) < 0 ||
        (rc = resolve_names(out, options, err)) < 0 ||
        (rc = config_stop_resolve(out, options, err)) < 0 ||
        (rc = config_end_resolve(out, options, err)) < 0 ||
        (rc = resolve_unit(out, options, err)) < 0 ||
        (rc = config_input_resolve(out, options, err)) < 0 ||
        (rc = config_output_resolve(out, options, err)) < 0 ||
        (rc = resolve_timer(out, err)) < 0 || (rc = check_devices(out, err)) < 0 ||
        (rc = placement_resolve(&out->placement, options, env,
                                count_placed(out, options), err)) < 0 ||
        (rc = resolve_nics(out, options, err)) < 0 ||
        (rc = resolve_pmi(out, options, err)) < 0 ||
        (rc = out->roles.count > 0
                  ? config_roles_find_programs(out, options, err)
                  : program_resolve(&out->program, options, env, err)) < 0)
        return rc;
    /* A run of one node listens to loopback alone, unless --local-addr says otherwise. */
    out->guards_stores = strcmp(option_text(options, OPTION_STORE_ACCESS), "any") !=
                             0 &&
                         (out->backend != CONFIG_LOCAL || *out->local_addr);
    warn_environment(env);
    return 0;
}

void config_deinit(struct config *config)
{
    for (int i = 0; i < CONFIG_FILTERS_MAX; i++) {
        free(config->out_filters[i]);
        free(config->err_filters[i]);
    }
    config_roles_deinit(config);
    ct_auth_token_wipe(&config->token);
    etcd_config_wipe(&config->etcd);
    placement_deinit(&config->placement);
    nic_hints_deinit(&config->nics);
}
