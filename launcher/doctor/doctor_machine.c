/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include "agent/postmortem/oom_counter.h"
#include "launcher/doctor/doctor.h"
#include "launcher/hardware/devices.h"
#include "rendezvous/net/port_owner.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

static void look_at_name(struct doctor *doctor)
{
    struct ct_addr addrs[CT_ADDRS_MAX];
    struct ct_nic nics[CT_ADDRS_MAX];
    char host[CT_HOST_MAX] = "";
    uint64_t began_ms;
    int count;

    (void)gethostname(host, sizeof host - 1);
    began_ms = ct_now_ms();
    count = ct_addr_resolve(host, 0, addrs, CT_ADDRS_MAX, NULL);
    doctor_check_name(doctor, host, addrs, count, ct_now_ms() - began_ms);
    count = ct_nic_list(nics, CT_ADDRS_MAX);
    for (int i = 0; i < count; i++)
        addrs[i] = nics[i].addr;
    doctor_check_addrs(doctor, addrs, count < 0 ? 0 : count);
}

/* SO_REUSEADDR, as our own listeners set it: else a port in TIME_WAIT would count as taken. The
 * port is free again at once, so this is what was true at one moment and reserves nothing. */
static bool is_port_taken(int port)
{
    struct ct_addr any;
    const int on = 1;
    bool is_taken = false;
    int fd = -1;

    if (ct_addr_parse("0.0.0.0", port, &any) == 0)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    is_taken = bind(fd, &any.any, any.length) < 0 && errno == EADDRINUSE;
    close(fd);
    return is_taken;
}

static void look_at_port(struct doctor *doctor, int port)
{
    char owner[PORT_OWNER_TEXT_MAX];

    if (!is_port_taken(port)) {
        doctor_check_port(doctor, port, NULL);
        return;
    }
    (void)port_owner_describe(port, owner); /* an error is explained, too */
    doctor_check_port(doctor, port, owner);
}

static void look_at_shm(struct doctor *doctor)
{
    struct statvfs info;

    if (statvfs("/dev/shm", &info) < 0)
        doctor_check_shm(doctor, 0, 0);
    else
        doctor_check_shm(doctor, (uint64_t)info.f_blocks * info.f_frsize,
                         (uint64_t)info.f_bavail * info.f_frsize);
}

static uint64_t limit_value(rlim_t value)
{
    return value == RLIM_INFINITY ? UINT64_MAX : (uint64_t)value;
}

static bool has_rdma(void)
{
    DIR *dir = opendir("/dev/infiniband");

    if (dir)
        closedir(dir);
    return dir != NULL;
}

/* One worker is assumed for each GPU: doctor does not know --nproc-per-node. */
static void look_at_limits(struct doctor *doctor)
{
    const int gpus = devices_gpu_count(NULL);
    struct rlimit files = {0};
    struct rlimit locked = {0};
    struct rlimit core = {0};

    (void)getrlimit(RLIMIT_NOFILE, &files);
    (void)getrlimit(RLIMIT_MEMLOCK, &locked);
    (void)getrlimit(RLIMIT_CORE, &core);
    doctor_check_limits(doctor, &(const struct doctor_limits){
                                    .nofile_soft = limit_value(files.rlim_cur),
                                    .nofile_hard = limit_value(files.rlim_max),
                                    .memlock_soft = limit_value(locked.rlim_cur),
                                    .core_soft = limit_value(core.rlim_cur),
                                    .has_rdma = has_rdma(),
                                    .workers = gpus > 0 ? gpus : 1,
                                });
}

void doctor_memory(struct doctor *doctor, const char *membership, const char *root)
{
    struct oom_counter cgroup;
    uint64_t max, used = 0;

    oom_counter_init(&cgroup, membership, root);
    max = oom_counter_get_limit(&cgroup, &used);
    doctor_check_memory(doctor, max, used);
}

/* adjtimex() with no modes set only reads, and needs no privilege. STA_UNSYNC is also set where a
 * hypervisor keeps the clock: so it is shown and is no warning. */
static void look_at_clock(struct doctor *doctor)
{
    struct timex clock = {0};
    char source[64];

    (void)ct_small_file_line(
        source, sizeof source,
        "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    doctor_check_clock(doctor, source,
                       adjtimex(&clock) >= 0 && !(clock.status & STA_UNSYNC));
}

void doctor_machine(struct doctor *doctor)
{
    look_at_name(doctor);
    look_at_port(doctor, CT_C10D_PORT);
    look_at_port(doctor, 29500);
    look_at_shm(doctor);
    look_at_limits(doctor);
    doctor_memory(doctor, "/proc/self/cgroup", "/sys/fs/cgroup");
    doctor_check_cpus(doctor, devices_cpu_count(), (int)sysconf(_SC_NPROCESSORS_ONLN));
    look_at_clock(doctor);
}
