/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/doctor/doctor.h"

#include "worker_sdk/base/str.h"

#define GIB ((uint64_t)1 << 30)

enum {
    DNS_SLOW_MS = 1000,
    FILES_PER_WORKER = 64, /* sockets to peers, data files, pipes */
    FILES_OWN = 1024,
};

struct doctor_finding *doctor_add(struct doctor *doctor, enum doctor_level level,
                                  const char *what, const char *fmt, ...)
{
    struct doctor_finding *finding;
    va_list args;

    if (doctor->count < DOCTOR_FINDINGS_MAX)
        doctor->count++;
    finding = &doctor->list[doctor->count - 1];
    *finding = (struct doctor_finding){.level = level};
    (void)ct_copy(finding->what, sizeof finding->what, what);
    va_start(args, fmt);
    (void)vsnprintf(finding->value, sizeof finding->value, fmt, args);
    va_end(args);
    return finding;
}

void doctor_set_fix(struct doctor_finding *finding, const char *fmt, ...)
{
    va_list args;

    if (finding->level == DOCTOR_OK)
        finding->level = DOCTOR_WARN;
    va_start(args, fmt);
    (void)vsnprintf(finding->fix, sizeof finding->fix, fmt, args);
    va_end(args);
}

const char *doctor_level_name(enum doctor_level level)
{
    static const char *const names[] = {"ok", "warn", "fail"};

    return names[level];
}

bool doctor_has_failed(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++)
        if (doctor->list[i].level == DOCTOR_FAIL)
            return true;
    return false;
}

/* ---- Network ----------------------------------------------------------------------------- */

/* "10.0.0.1, fe80::1"; true when all are loopback addresses. */
static bool format_addrs(char *dst, size_t size, const struct ct_addr *addrs, int count)
{
    char one[CT_ADDR_TEXT_MAX];
    bool is_loopback = true;

    *dst = '\0';
    for (int i = 0; i < count; i++) {
        ct_addr_format_host(one, &addrs[i]);
        is_loopback &= ct_addr_is_loopback(&addrs[i]);
        (void)ct_append_item(dst, size, ", ", "%s", one);
    }
    return is_loopback;
}

void doctor_check_name(struct doctor *doctor, const char *host,
                       const struct ct_addr *addrs, int count, uint64_t took_ms)
{
    struct doctor_finding *finding;
    char text[384];

    if (count <= 0) {
        finding = doctor_add(doctor, DOCTOR_WARN, "host name", "%.200s has no address",
                             host);
        doctor_set_fix(finding,
                       "ctrun does not need it, but gloo and NCCL bootstrap may: "
                       "add it to /etc/hosts with an address that others reach");
        return;
    }
    if (format_addrs(text, sizeof text, addrs, count)) {
        finding = doctor_add(doctor, DOCTOR_WARN, "host name", "%.100s is %.300s", host,
                             text);
        doctor_set_fix(
            finding,
            "programs that send this name to others (Gloo) cannot be reached: give the "
            "name a real address in /etc/hosts, or set GLOO_SOCKET_IFNAME");
    } else {
        (void)doctor_add(doctor, DOCTOR_OK, "host name", "%.100s is %.300s", host,
                         text);
    }
    if (took_ms >= DNS_SLOW_MS) {
        finding = doctor_add(doctor, DOCTOR_WARN, "name lookup", "%llu ms",
                             (unsigned long long)took_ms);
        doctor_set_fix(finding,
                       "the resolver is slow: put the nodes into /etc/hosts, or "
                       "give the endpoint as an IP address");
    } else {
        (void)doctor_add(doctor, DOCTOR_OK, "name lookup", "%llu ms",
                         (unsigned long long)took_ms);
    }
}

void doctor_check_addrs(struct doctor *doctor, const struct ct_addr *addrs, int count)
{
    char text[384];

    if (!format_addrs(text, sizeof text, addrs, count)) {
        (void)doctor_add(doctor, DOCTOR_OK, "addresses", "%s", text);
        return;
    }
    doctor_set_fix(
        doctor_add(doctor, DOCTOR_WARN, "addresses", "%s", count > 0 ? text : "none"),
        "no interface but loopback is up: only runs on this one node are possible");
}

void doctor_check_port(struct doctor *doctor, int port, const char *owner)
{
    char what[32];

    (void)ct_format(what, sizeof what, "port %d", port);
    if (!owner) {
        (void)doctor_add(doctor, DOCTOR_OK, what, "free");
        return;
    }
    doctor_set_fix(doctor_add(doctor, DOCTOR_WARN, what, "taken: %s", owner),
                   "stop what uses it, or choose another port with --rdzv-endpoint or "
                   "--master-port; a run on one node needs no fixed port");
}

/* ---- Memory ------------------------------------------------------------------------------ */

static void format_size(char *dst, size_t size, uint64_t bytes)
{
    if (bytes == UINT64_MAX)
        (void)ct_copy(dst, size, "unlimited");
    else if (bytes >= GIB)
        (void)ct_format(dst, size, "%.1f GiB", (double)bytes / (double)GIB);
    else
        (void)ct_format(dst, size, "%.1f MiB", (double)bytes / (1 << 20));
}

void doctor_check_shm(struct doctor *doctor, uint64_t total_bytes, uint64_t free_bytes)
{
    struct doctor_finding *finding;
    char total[32];
    char left[32];

    format_size(total, sizeof total, total_bytes);
    format_size(left, sizeof left, free_bytes);
    finding = doctor_add(doctor, DOCTOR_OK, "/dev/shm", "%s, %s free", total, left);
    if (total_bytes == 0) {
        finding->level = DOCTOR_FAIL;
        doctor_set_fix(finding,
                       "mount a tmpfs there: collectives and data loaders use it");
    } else if (total_bytes < GIB) {
        doctor_set_fix(finding,
                       "docker: --shm-size=8g or --ipc=host; Kubernetes: an emptyDir "
                       "of medium Memory at /dev/shm");
    } else if (free_bytes < total_bytes / 10)
        doctor_set_fix(finding, "ls -l /dev/shm; remove the files that no job uses");
}

void doctor_check_memory(struct doctor *doctor, uint64_t max_bytes, uint64_t used_bytes)
{
    struct doctor_finding *finding;
    char max[32];
    char used[32];

    format_size(max, sizeof max, max_bytes);
    format_size(used, sizeof used, used_bytes);
    if (max_bytes == UINT64_MAX) {
        (void)doctor_add(doctor, DOCTOR_OK, "cgroup memory", "no limit");
        return;
    }
    finding = doctor_add(doctor, DOCTOR_OK, "cgroup memory", "%s, %s used", max, used);
    if (used_bytes > max_bytes - max_bytes / 10)
        doctor_set_fix(finding,
                       "the kernel's OOM killer may kill workers: ask the scheduler "
                       "for more memory (Slurm: --mem)");
}

/* ---- Limits, CPUs, clock ----------------------------------------------------------------- */

static void format_limit(char *dst, size_t size, uint64_t value)
{
    if (value == UINT64_MAX)
        (void)ct_copy(dst, size, "unlimited");
    else
        (void)ct_format(dst, size, "%llu", (unsigned long long)value);
}

void doctor_check_limits(struct doctor *doctor, const struct doctor_limits *limits)
{
    const uint64_t files = (uint64_t)limits->workers * FILES_PER_WORKER + FILES_OWN;
    struct doctor_finding *finding;
    char soft[32];
    char hard[32];

    format_limit(soft, sizeof soft, limits->nofile_soft);
    format_limit(hard, sizeof hard, limits->nofile_hard);
    finding = doctor_add(doctor, DOCTOR_OK, "open files", "%s, at most %s", soft, hard);
    if (limits->nofile_soft < files)
        doctor_set_fix(finding, "%d workers may need %llu: ulimit -n %llu%s",
                       limits->workers, (unsigned long long)files,
                       (unsigned long long)files,
                       limits->nofile_hard < files
                           ? ", after raising the hard limit in limits.conf or the unit"
                           : "");
    format_size(soft, sizeof soft, limits->memlock_soft);
    finding = doctor_add(doctor, DOCTOR_OK, "locked memory", "%s", soft);
    if (limits->has_rdma && limits->memlock_soft != UINT64_MAX)
        doctor_set_fix(finding,
                       "InfiniBand registers memory: memlock unlimited in limits.conf, "
                       "LimitMEMLOCK=infinity for slurmd or docker");
    format_size(soft, sizeof soft, limits->core_soft);
    (void)doctor_add(doctor, DOCTOR_OK, "core files", "%s",
                     limits->core_soft ? soft
                                       : "none (ulimit -c unlimited to have them)");
}

void doctor_check_cpus(struct doctor *doctor, int usable, int online)
{
    struct doctor_finding *finding = doctor_add(doctor, DOCTOR_OK, "CPUs", "%d of %d",
                                                usable, online);

    if (usable < online)
        doctor_set_fix(finding,
                       "this process may use no other CPUs; ask for more: Slurm "
                       "--cpus-per-task (srun does not inherit it) or --exclusive");
}

void doctor_check_clock(struct doctor *doctor, const char *source, bool is_synchronised)
{
    static const char *const quick[] = {"tsc", "kvm-clock", "arch_sys_counter",
                                        "hyperv_clocksource_tsc_page", "timebase"};
    struct doctor_finding *finding = doctor_add(
        doctor, DOCTOR_WARN, "clock", "%s, %s", *source ? source : "unknown",
        is_synchronised ? "synchronised" : "not known to be synchronised");

    doctor_set_fix(finding,
                   "reading this clock is slow: it needs a system call; dmesg | grep "
                   "-i clocksource shows why the kernel does not use tsc");
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (strcmp(source, quick[i]) == 0 || !*source) {
            finding->level = DOCTOR_OK;
            finding->fix[0] = '\0';
        }
}
