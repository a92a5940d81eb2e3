/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/placement.h"

#include <errno.h>
#include <limits.h>

#include "launcher/hardware/cpu_quota.h"
#include "launcher/hardware/devices.h"
#include "launcher/hardware/gpus.h"
#include "launcher/hardware/topology.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

static const char sysfs[] = "/sys";

/* ---- CPUs ---------------------------------------------------------------------------- */

int placement_bind_all(struct placement *out, const struct numa_machine *machine,
                       int nproc, struct ctrun_error *err)
{
    out->bound = ct_zalloc_array((size_t)nproc, sizeof *out->bound);
    if (machine->gpus)
        out->gpus = ct_zalloc_array((size_t)nproc, sizeof *out->gpus);
    if (!out->bound || (machine->gpus && !out->gpus))
        return ct_fail(err, -ENOMEM, "--numa-binding: out of memory");
    for (int i = 0; i < nproc; i++) {
        int rc = numa_cpus(&out->bound[i], machine, out->mode, i, err);

        if (rc < 0)
            return rc;
        if (out->gpus)
            memcpy(out->gpus[i], machine->gpus[i], sizeof out->gpus[i]);
    }
    return 0;
}

static int resolve_binding(struct placement *out, const char *mode, char *const *env,
                           int nproc, struct ctrun_error *err)
{
    struct gpus all;
    struct gpus visible;
    int rc;

    if (!*mode)
        return 0;
    if (numa_parse_mode(mode, &out->mode) < 0)
        return ct_fail(err, -EINVAL, "--numa-binding=%s: no such mode", mode);
    if (out->mode == NUMA_CORES)
        return placement_bind_all(out,
                                  &(struct numa_machine){.sysfs = sysfs,
                                                         .allowed = &out->allowed,
                                                         .workers = nproc},
                                  nproc, err);
    gpus_find(&all);
    if (all.count == 0)
        return ct_fail(err, CTRUN_E_RESOURCES,
                       "--numa-binding=%s: No accelerator available for NUMA binding; "
                       "--numa-binding=cores needs none",
                       mode);
    if ((rc = gpus_select(&visible, &all, ct_env_find(env, "CUDA_VISIBLE_DEVICES"),
                          err)) < 0)
        return rc;
    if (visible.count < nproc)
        return ct_fail(
            err, CTRUN_E_RESOURCES,
            "--numa-binding=%s: %d workers, but %d visible GPUs of %d: worker "
            "i is bound near GPU i; lower --nproc-per-node or widen "
            "CUDA_VISIBLE_DEVICES",
            mode, nproc, visible.count, all.count);
    return placement_bind_all(out,
                              &(struct numa_machine){
                                  .sysfs = sysfs,
                                  .allowed = &out->allowed,
                                  .gpus = (const char(*)[16])visible.pci,
                                  .gpu_count = visible.count,
                              },
                              nproc, err);
}

static void warn_small_mask(const struct placement *placement, char *const *env,
                            int nproc)
{
    int cpus = cpuset_count(&placement->allowed);
    char text[128];

    if (placement->quota > 0 && placement->quota < nproc && placement->quota <= cpus) {
        ct_info("%d workers share the time of %d CPU%s: a limit of the cgroup, as a "
                "container or a pod has it",
                nproc, placement->quota, placement->quota > 1 ? "s" : "");
        return;
    }
    if (cpus >= nproc || cpus == 0)
        return;
    cpuset_format(&placement->allowed, text, sizeof text);
    if (ct_env_find(env, "SLURM_JOB_ID"))
        messages_warn(CTRUN_E_RESOURCES,
                      "%d workers share %d CPU%s (%s): the Slurm step was given "
                      "no more; "
                      "srun --cpus-per-task=%d or --cpu-bind=none gives each its own",
                      nproc, cpus, cpus > 1 ? "s" : "", text, nproc);
    else if (cpus < devices_online_cpu_count())
        messages_warn(
            CTRUN_E_RESOURCES,
            "%d workers share %d CPU%s (%s): this process was started "
            "with a "
            "smaller CPU mask than the machine; see taskset(1) or the container's "
            "cpuset",
            nproc, cpus, cpus > 1 ? "s" : "", text);
}

/* ---- Threads ------------------------------------------------------------------------- */

int placement_omp_threads(int cores, int nproc)
{
    return cores / nproc > 1 ? cores / nproc : 1;
}

/* Workers that are bound alike share their cores; the worker with the fewest cores decides. All
 * workers get one number, as torchrun's OMP_NUM_THREADS; a worker with more cores leaves some idle,
 * so that no others must share a core. */
static int bound_threads(const struct placement *placement, int nproc)
{
    int least = INT_MAX;

    for (int i = 0; i < nproc; i++) {
        int sharing = 0;
        int threads;

        for (int j = 0; j < nproc; j++)
            sharing += cpuset_is_equal(&placement->bound[i], &placement->bound[j]);
        threads = placement_omp_threads(
            topology_count_cores(sysfs, &placement->bound[i]), sharing);
        least = threads < least ? threads : least;
    }
    return least;
}

static void warn_as_torchrun(void)
{
    static const char stars[] = "*****************************************";

    ct_warn("\n%s\nSetting OMP_NUM_THREADS environment variable for each process to be "
            "1 in "
            "default, to avoid your system being overloaded, please further tune the "
            "variable "
            "for optimal performance in your application as needed. \n%s",
            stars, stars);
}

static int resolve_omp(struct placement *out, const char *how, char *const *env,
                       int nproc, struct ctrun_error *err)
{
    int64_t threads = 1;
    bool is_auto = strcmp(how, "auto") == 0;
    bool is_torchrun = strcmp(how, "torchrun") == 0;

    if (!is_auto && !is_torchrun &&
        (ct_parse_python_int(how, &threads) < 0 || threads < 1 || threads > INT_MAX))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--omp-threads=%s: not auto, torchrun or a number from 1", how);
    if (ct_env_find(env, "OMP_NUM_THREADS"))
        return 0; /* the user's */
    if (!is_auto && !is_torchrun) {
        out->omp_threads = (int)threads;
        return 0;
    }
    if (nproc < 2)
        return 0; /* one worker may have all */
    if (is_torchrun) {
        out->omp_threads = 1;
        warn_as_torchrun();
        return 0;
    }
    out->sets_omp = true;
    out->omp_threads = out->bound ? bound_threads(out, nproc)
                                  : placement_omp_threads(out->cores, nproc);
    if (out->quota > 0 && out->omp_threads > placement_omp_threads(out->quota, nproc))
        out->omp_threads = placement_omp_threads(out->quota, nproc);
    return 0;
}

/* ---- The whole ----------------------------------------------------------------------- */

int placement_resolve(struct placement *out, const struct options *options,
                      char *const *env, int nproc, struct ctrun_error *err)
{
    int rc;

    *out = (struct placement){
        .raises_files = strcmp(option_text(options, OPTION_OPEN_FILES), "keep") != 0,
        .raises_core = options->values[OPTION_CORE].is_on,
    };
    devices_cpus(&out->allowed);
    if ((rc = resolve_binding(out, option_text(options, OPTION_NUMA_BINDING), env,
                              nproc, err)) < 0)
        return rc;
    out->cores = topology_count_cores(sysfs, &out->allowed);
    out->quota = cpu_quota_find("/proc/self/cgroup", "/sys/fs/cgroup");
    warn_small_mask(out, env, nproc);
    return resolve_omp(out, option_text(options, OPTION_OMP_THREADS), env, nproc, err);
}

void placement_deinit(struct placement *placement)
{
    free(placement->bound);
    free(placement->gpus);
    placement->bound = NULL;
    placement->gpus = NULL;
}

void placement_bind(struct bind *out, const struct placement *placement, int local_rank)
{
    *out = (struct bind){.raises_files = placement->raises_files,
                         .raises_core = placement->raises_core,
                         .has_cpus = placement->bound != NULL};
    if (placement->bound)
        out->cpus = placement->bound[local_rank];
}
