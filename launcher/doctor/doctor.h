/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of ctrunctl doctor: what was checked, its value, and the fix if it is wrong.
 *
 *     doctor_machine(), doctor_gpus(), doctor_peer() read values; doctor_check_x() judge these
 *     values and are pure. */
#pragma once

#include "worker_sdk/net/addr.h"

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_WARN, /* works, but often causes trouble */
    DOCTOR_FAIL, /* a run will not work like this */
};

struct doctor_finding {
    enum doctor_level level;
    char what[32];
    char value[512];
    char fix[256]; /* empty when level is OK */
};

enum {
    DOCTOR_FINDINGS_MAX = 64
};

struct doctor {
    struct doctor_finding list[DOCTOR_FINDINGS_MAX];
    size_t count;
};

/* Adds a finding with its value; the caller sets the fix. Never NULL: beyond the last one it
 * overwrites the last. */
__attribute__((format(printf, 4, 5))) struct doctor_finding *
doctor_add(struct doctor *doctor, enum doctor_level level, const char *what,
           const char *fmt, ...);
/* Nothing that is well has a fix: DOCTOR_OK becomes DOCTOR_WARN. */
__attribute__((format(printf, 2, 3))) void
doctor_set_fix(struct doctor_finding *finding, const char *fmt, ...);
const char *doctor_level_name(enum doctor_level level);
/* True when a finding has level DOCTOR_FAIL. */
bool doctor_has_failed(const struct doctor *doctor);

/* Read values of this machine and add findings. */
void doctor_machine(struct doctor *doctor);
/* The lowest memory limit of a cgroup; the paths are those of oom_counter_init(). */
void doctor_memory(struct doctor *doctor, const char *membership, const char *root);
void doctor_gpus(struct doctor *doctor);
void doctor_libraries(struct doctor *doctor);
/* True when this program can load libraries; false in a static program. */
bool doctor_can_load(void);
/* Versions of the driver and of NCCL, "" where there is none; both of `size` bytes. */
void doctor_gpu_versions(char *driver, char *nccl, size_t size);
/* Checks the rendezvous endpoint "host:port" from this machine; blocks some seconds at most. */
void doctor_peer(struct doctor *doctor, const char *endpoint);

/* ---- Judging. Pure. */

/* The host name: what it resolves to (count < 0: nothing) and how long that took. */
void doctor_check_name(struct doctor *doctor, const char *host,
                       const struct ct_addr *addrs, int count, uint64_t took_ms);
void doctor_check_addrs(struct doctor *doctor, const struct ct_addr *addrs, int count);
/* owner NULL: the port is free; else what port_owner_describe() writes. */
void doctor_check_port(struct doctor *doctor, int port, const char *owner);
void doctor_check_shm(struct doctor *doctor, uint64_t total_bytes, uint64_t free_bytes);

struct doctor_limits { /* UINT64_MAX: unlimited */
    uint64_t nofile_soft;
    uint64_t nofile_hard;
    uint64_t memlock_soft;
    uint64_t core_soft;
    bool has_rdma;
    int workers; /* that this machine is likely to run */
};
void doctor_check_limits(struct doctor *doctor, const struct doctor_limits *limits);
/* max_bytes UINT64_MAX: no limit. */
void doctor_check_memory(struct doctor *doctor, uint64_t max_bytes,
                         uint64_t used_bytes);
void doctor_check_cpus(struct doctor *doctor, int usable, int online);
void doctor_check_clock(struct doctor *doctor, const char *source,
                        bool is_synchronised);
