/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/work_config.h"

#include <errno.h>

#include "launcher/config/random_id.h"
#include "launcher/hardware/devices.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* On when the variable is exactly "1". */
static int resolve_timer(struct work_config *out, char *const *env,
                         struct ctrun_error *err)
{
    const char *is_on = ct_env_find(env, "TORCHELASTIC_ENABLE_FILE_TIMER");
    const char *path = ct_env_find(env, CT_ENV_TIMER_FILE);
    const char *folder = ct_env_find(env, "TMPDIR");
    char id[64];
    int rc;

    if (!is_on || strcmp(is_on, "1") != 0)
        return 0;
    if ((rc = random_id_make(id, sizeof id, err)) < 0)
        return rc;
    if (path && *path)
        rc = ct_copy(out->timer_file, sizeof out->timer_file, path);
    else
        rc = ct_format(out->timer_file, sizeof out->timer_file, "%s/watchdog_timer_%s",
                       folder && *folder ? folder : "/tmp", id);
    return rc < 0 ? ct_fail(err, rc, "file timer: the path is too long") : 0;
}

static int check_devices(const struct work_config *config, char *const *env, int nproc,
                         struct ctrun_error *err)
{
    const char *name = "HIP_VISIBLE_DEVICES";
    const char *visible = ct_env_find(env, name);
    char entry[256];

    if (!config->virtual_local_rank)
        return 0;
    if (!visible || !*visible)
        visible = ct_env_find(env, name = "CUDA_VISIBLE_DEVICES");
    if (!visible || (!*visible && nproc == 1)) /* an empty list hides all devices */
        return 0;
    for (int i = 0; i < nproc; i++)
        if (devices_visible_entry(visible, i, entry, sizeof entry) < 0)
            return ct_fail(
                err, CTRUN_E_RESOURCES,
                "--virtual-local-rank: local_rank %d exceeds available GPUs in "
                "%s=%s",
                i, name, visible);
    return 0;
}

/* How many workers are placed together. A task that is a rank counts its own worker, and the others
 * of its node where it shares CPUs with them, or sees the GPUs of all. */
static int count_placed(struct run_config *run, const struct options *options,
                        char *const *env)
{
    const struct config_task *task = &run->task;
    const char *visible = ct_env_find(env, "CUDA_VISIBLE_DEVICES");
    int cpus = devices_cpu_count();
    bool is_bound = option_has_text(options, OPTION_NUMA_BINDING);
    bool is_near_gpu = is_bound &&
                       strcmp(option_text(options, OPTION_NUMA_BINDING), "cores") != 0;

    if (!task->is_rank)
        return run->nproc;
    if (is_near_gpu ? visible && devices_visible_count(visible) < task->local_count
                    : cpus * task->local_count <= devices_online_cpu_count())
        return 1;
    run->task.place = is_bound ? task->local_id : 0;
    return is_bound || cpus >= task->local_count ? task->local_count : cpus;
}

/* NICs are found only where they are used or shown, because NVML may have to be loaded. */
static int resolve_nics(struct work_config *out, const struct options *options,
                        char *const *env, const struct run_config *run,
                        struct ctrun_error *err)
{
    const bool is_used = options->values[OPTION_NIC_AFFINITY].is_on;
    const char *visible = ct_env_find(env, "CUDA_VISIBLE_DEVICES");
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
            ct_warn("--nic-affinity has no effect on %s: no GPU is visible", run->host);
        return 0;
    }
    first = run->task.is_rank && gpus.count > 1 ? run->task.local_id : 0;
    if (nic_hints_fill(&out->nics, "/sys", &gpus, first, run->nproc) < 0)
        return ct_fail(err, -ENOMEM, "--nic-affinity: out of memory");
    out->nics.sets_env = is_used;
    if (is_used && !nic_hints_has_hca(&out->nics))
        ct_warn(
            "--nic-affinity has no effect on %s: no InfiniBand or RoCE device is on "
            "its PCI buses",
            run->host);
    else if (is_used && ct_env_find(env, "NCCL_IB_HCA"))
        ct_warn("--nic-affinity: NCCL_IB_HCA is set, and stays as it is");
    return 0;
}

int work_config_resolve(struct work_config *out, const struct options *options,
                        char *const *env, struct run_config *run,
                        struct ctrun_error *err)
{
    int rc;

    out->virtual_local_rank = options->values[OPTION_VIRTUAL_LOCAL_RANK].is_on;
    out->has_jax = options->values[OPTION_JAX].is_on;
    if ((rc = warm_config_resolve(&out->warm, options, env, err)) < 0 ||
        (rc = resolve_timer(out, env, err)) < 0 ||
        (rc = check_devices(out, env, run->nproc, err)) < 0 ||
        (rc = placement_resolve(&out->placement, options, env,
                                count_placed(run, options, env), err)) < 0)
        return rc;
    return resolve_nics(out, options, env, run, err);
}

void work_config_deinit(struct work_config *config)
{
    placement_deinit(&config->placement);
    nic_hints_deinit(&config->nics);
}
