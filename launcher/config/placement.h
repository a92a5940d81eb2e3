/* SPDX-License-Identifier: Apache-2.0 */
/* Where this node's workers run and what they may use: CPUs (--numa-binding), the number of
 * OpenMP threads, limits. Decided once, before anything starts. */
#pragma once

#include "agent/process/bind.h"
#include "launcher/hardware/numa.h"
#include "launcher/options/option.h"
#include "worker_sdk/base/error.h"

struct placement {
    struct cpuset allowed; /* that ctrun may use */
    int cores;             /* physical ones among them */
    int quota;             /* CPU time that its cgroups allow, in CPUs; 0: no limit */
    enum numa_mode mode;
    struct cpuset *bound; /* owned, one a worker; NULL: not bound */
    char (*gpus)[16];     /* owned, PCI address of each worker's GPU; NULL: not bound */
    int omp_threads;      /* OMP_NUM_THREADS of each worker; 0: not ours to set */
    bool sets_omp;        /* we chose them: one line at the start */
    bool raises_files;
    bool raises_core;
};

/* 0, or the code of a refusal; may be deinit'ed in any case. Logs warnings. */
int placement_resolve(struct placement *out, const struct options *options,
                      char *const *env, int nproc, struct ctrun_error *err);
void placement_deinit(struct placement *placement);
/* Sets agent_worker_plan.bind. */
void placement_bind(struct bind *out, const struct placement *placement,
                    int local_rank);

/* OMP_NUM_THREADS for `nproc` workers that share `cores`: at least 1. */
int placement_omp_threads(int cores, int nproc);
/* Binds every worker; separate so that tests can pass a machine of their own. */
int placement_bind_all(struct placement *out, const struct numa_machine *machine,
                       int nproc, struct ctrun_error *err);
