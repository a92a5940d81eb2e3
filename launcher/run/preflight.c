/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/preflight.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/process/shm.h"
#include "launcher/batch/batch_systems.h"
#include "launcher/hardware/devices.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/str.h"

enum {
    /* What NCCL takes in /dev/shm: 33 to 34 MiB a rank with its defaults. */
    SHM_RANK_BYTES = 34 << 20,
    SHM_MIN_AGE_S = 60, /* a younger unused segment may still be in creation */
    FILES_BASE = 1024,  /* open files of a worker: these, and */
    FILES_EACH = 64,    /* these for each worker of the node */
    MIB = 1 << 20
};

/* ---- Shared memory ------------------------------------------------------------------- */

/* Unused files may belong to another job, or be kept on purpose: only the user can know. */
static void add_stale(struct messages_block *out)
{
    uint64_t bytes;
    const int count = shm_count_unused(SHM_MIN_AGE_S, &bytes);

    if (count > 0)
        messages_add(out, "stale",
                     "%llu MiB in %d file%s of yours that no process here uses: "
                     "ls -l /dev/shm; if no job of yours needs them, remove them",
                     (unsigned long long)(bytes / MIB), count, count > 1 ? "s" : "");
}

static void warn_shm(const struct config *config)
{
    const uint64_t needed = (uint64_t)config->run.nproc * SHM_RANK_BYTES;
    struct messages_block block;
    struct statvfs info;
    uint64_t free_bytes;

    if (config->run.nproc < 2 || statvfs("/dev/shm", &info) < 0)
        return;
    free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    if (free_bytes >= needed)
        return;
    messages_begin_warning(
        &block, CTRUN_E_SHM,
        "/dev/shm has %llu MiB free on %s; %d NCCL ranks need about %llu MiB",
        (unsigned long long)(free_bytes / MIB), config->run.host, config->run.nproc,
        (unsigned long long)(needed / MIB));
    add_stale(&block);
    messages_add(
        &block, "do",
        "docker run --shm-size=1g ...; Kubernetes: emptyDir{medium: Memory} on "
        "/dev/shm");
    messages_print(&block);
}

/* ---- GPUs, files --------------------------------------------------------------------- */

static void warn_gpus(const struct config *config)
{
    const char *visible = ct_env_find(config->env, "CUDA_VISIBLE_DEVICES");
    const int wanted = config_widest_role(config); /* other roles may need none */
    const int gpus = wanted > 1 ? devices_gpu_count(visible) : 0;
    struct messages_block block;

    if (gpus == 0 || gpus >= wanted)
        return; /* workers on CPUs, or enough */
    messages_begin_warning(&block, CTRUN_E_RESOURCES,
                           "%s has %d usable GPU%s, %d workers are asked for",
                           config->run.host, gpus, gpus > 1 ? "s" : "", wanted);
    if (visible)
        messages_add(&block, "visible", "CUDA_VISIBLE_DEVICES=%s", visible);
    messages_add(
        &block, "do",
        "--nproc-per-node=gpu takes as many as there are; CUDA_VISIBLE_DEVICES= hides "
        "them from workers that use none");
    messages_print(&block);
}

static void warn_files(const struct config *config)
{
    const uint64_t needed = FILES_BASE +
                            (uint64_t)FILES_EACH * (uint64_t)config->run.nproc;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < needed)
        messages_warn(0,
                      "workers may have %llu open files at most (ulimit -Hn); %d "
                      "worker%s may want %llu",
                      (unsigned long long)limit.rlim_max, config->run.nproc,
                      config->run.nproc == 1 ? "" : "s", (unsigned long long)needed);
}

void preflight_warn(const struct config *config)
{
    warn_shm(config);
    warn_gpus(config);
    warn_files(config);
}

/* ---- The endpoint -------------------------------------------------------------------- */

/* True for a numeric loopback address, or a name that means loopback on every machine. False for
 * the machine's own name: Debian's /etc/hosts maps it to 127.0.1.1, but only on that machine. */
static bool is_loopback_everywhere(const char *host, char *number)
{
    struct ct_addr addr;

    if (ct_addr_parse(host, 0, &addr) < 0 &&
        (!ct_addr_is_localhost(host) || ct_addr_parse("127.0.0.1", 0, &addr) < 0))
        return false;
    ct_addr_format_host(number, &addr);
    return ct_addr_is_loopback(&addr);
}

/* The first address of this node that other nodes may reach. */
static bool find_usable(struct ct_nic *out)
{
    struct ct_nic nics[CT_ADDRS_MAX];
    const int count = ct_nic_list(nics, CT_ADDRS_MAX);

    for (int i = 0; i < count; i++)
        if (!nics[i].is_loopback && nics[i].has_carrier) {
            *out = nics[i];
            return true;
        }
    return false;
}

static int refuse_loopback(struct messages_block *out, const struct config *config,
                           const struct batch_place *place, const char *number)
{
    char usable[CT_ADDR_TEXT_MAX];
    struct ct_nic nic;

    messages_begin(
        out, CTRUN_E_LOOPBACK,
        "%d nodes are asked for, but the rendezvous address '%s' is %s (this "
        "machine only)",
        config->run.nodes.max, config->rdzv.endpoint.host, number);
    messages_add(out, "from",
                 "--rdzv-endpoint or --master-addr; %s has given %zu hosts",
                 place->system, place->nodes.count);
    if (find_usable(&nic)) {
        ct_addr_format_host(usable, &nic.addr);
        messages_add(out, "usable", "%s (%s)", usable, nic.name);
    }
    messages_add(
        out, "do",
        "leave the endpoint out, because %s names the nodes; or name the first host",
        place->system);
    return CTRUN_E_LOOPBACK;
}

/* In a new network namespace the loopback interface is down: no connection to a listener there
 * succeeds. */
int preflight_check_loopback(const struct config *config, struct ctrun_error *err)
{
    const char *host = config->rdzv.backend == CONFIG_LOCAL
                           ? "127.0.0.1"
                           : config->rdzv.endpoint.host;
    char number[CT_ADDR_TEXT_MAX];
    struct ct_addr addr;
    int code;
    int fd;

    if (config->rdzv.backend == CONFIG_ETCD || !is_loopback_everywhere(host, number) ||
        ct_addr_parse(number, 1, &addr) < 0 ||
        (fd = socket(addr.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        return 0;
    code = connect(fd, &addr.any, addr.length) < 0 ? errno : 0; /* sends nothing */
    close(fd);
    return code == ENETUNREACH || code == EADDRNOTAVAIL
               ? ct_fail(err, CTRUN_E_RESOURCES,
                         "%s cannot reach its own address %s: %s; if its loopback "
                         "interface is down: ip link set lo up",
                         config->run.host, number, strerror(code))
               : 0;
}

int preflight_check_endpoint(struct messages_block *out, const struct config *config)
{
    const struct batch_source source = batch_source_of(&config->env);
    struct batch_place place = {0};
    char number[CT_ADDR_TEXT_MAX];
    int rc = 0;

    if (config->rdzv.backend == CONFIG_LOCAL || config->run.nodes.max < 2 ||
        config->rdzv.pmi.is_used || /* then the endpoint's name is not used */
        !is_loopback_everywhere(config->rdzv.endpoint.host, number) ||
        batch_find(&place, &source, NULL) != 1)
        return 0;
    if (place.has_size && place.nodes.count > 1)
        rc = refuse_loopback(out, config, &place, number);
    batch_place_deinit(&place);
    return rc;
}
