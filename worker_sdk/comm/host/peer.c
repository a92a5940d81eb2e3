/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/kernel.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    HELLO_VERSION = 3,
    BOOT_ID_MAX = 40,
};

/* ---- Who we are ---------------------------------------------------------------------- */

static uint64_t namespace_id(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_ino;
}

/* Part of the host's id: the kernel lets a process open another's /proc/PID/fd only if it has all
 * capabilities that the other one has. */
static uint64_t permitted_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0)
        return 0;
    return (uint64_t)data[1].permitted << 32 | data[0].permitted;
}

/* Identifies this boot of the kernel; empty when it cannot be read. */
static void read_boot_id(char dst[BOOT_ID_MAX])
{
    (void)ct_small_file_line(dst, BOOT_ID_MAX, "/proc/sys/kernel/random/boot_id");
}

/* The number of a namespace is unique on one kernel only (the first namespace has the same number
 * everywhere): so the kernel's boot id is mixed in. */
static uint64_t find_net_id(void)
{
    char boot_id[BOOT_ID_MAX];

    read_boot_id(boot_id);
    return ct_hash_add(CT_HASH_START ^ namespace_id("/proc/self/ns/net"), boot_id,
                       strlen(boot_id));
}

static const char alone[] = "alone/";

void ct_peer_be_alone(struct ct_peer *peer)
{
    (void)ct_format(peer->host_id, sizeof peer->host_id, "%s%d", alone, peer->rank);
}

bool ct_peer_is_alone(const struct ct_peer *peer)
{
    return strncmp(peer->host_id, alone, sizeof alone - 1) == 0;
}

/* Two processes share memory when each may open the other's /proc/PID/fd: same kernel, pid and user
 * namespace, user and capabilities. /dev/shm must be the same, too, because containers use it to
 * show that they share memory. */
static void find_host_id(struct ct_peer *peer)
{
    char boot_id[BOOT_ID_MAX];
    struct stat shm = {0};

    read_boot_id(boot_id);
    (void)stat("/dev/shm", &shm);
    (void)ct_format(peer->host_id, sizeof peer->host_id, "%s/%lx:%lx/%lx/%lx/%u/%lx",
                    boot_id, (unsigned long)shm.st_dev, (unsigned long)shm.st_ino,
                    (unsigned long)namespace_id("/proc/self/ns/pid"),
                    (unsigned long)namespace_id("/proc/self/ns/user"), geteuid(),
                    (unsigned long)permitted_capabilities());
    if (!*boot_id || prctl(PR_GET_DUMPABLE) != 1) /* others may not open our memory */
        ct_peer_be_alone(peer);
}

/* Not where the user forbids it, nor where the death of a member could not be noticed: a kernel or a
 * sandbox without pidfd_open(), as valgrind is. The other members learn of it from host_id. */
static bool may_share(void)
{
    static atomic_bool has_warned; /* once a process, not once a group */
    const char *disable = getenv("CTRUN_SHM_DISABLE");
    int fd;

    if (disable && strcmp(disable, "1") == 0)
        return false;
    fd = ct_pidfd_open(getpid());
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        const int error = errno;

        if (!atomic_exchange(&has_warned, true))
            ct_warn("no shared memory, using TCP: pidfd_open: %s", strerror(error));
        return false;
    }
    if (fd >= 0)
        close(fd);
    return true;
}

void ct_peer_describe_self(struct ct_peer *peer, const struct ct_backend_setup *setup)
{
    *peer = (struct ct_peer){
        .rank = setup->place->rank,
        .pid = getpid(),
        .start_ticks = ct_small_file_started(getpid()),
        .net_id = find_net_id(),
        .members = ct_hash(setup->ranks, (size_t)setup->size * sizeof *setup->ranks),
        .segment_fd = -1};
    if (gethostname(peer->name, sizeof peer->name - 1) < 0)
        (void)ct_copy(peer->name, sizeof peer->name, "?");
    if (setup->place->host_id)
        (void)ct_copy(peer->host_id, sizeof peer->host_id, setup->place->host_id);
    else if (setup->options->shm && may_share())
        find_host_id(peer);
    else
        ct_peer_be_alone(peer);
}

void ct_peer_format(char *dst, const struct ct_peer *peer)
{
    (void)ct_format(dst, CT_PEER_TEXT_MAX, "rank %d (pid %d on %s)", peer->rank,
                    (int)peer->pid, peer->name);
}

/* ---- The hello ----------------------------------------------------------------------- */

static void encode_addr(struct ct_writer *out, const struct ct_addr *addr)
{
    bool is_v4 = addr->any.sa_family == AF_INET;

    ct_write_u8(out, is_v4 ? 4 : 6);
    ct_write_u16(out, (uint16_t)ct_addr_port(addr));
    if (is_v4)
        ct_write_raw(out, &addr->v4.sin_addr, 4);
    else
        ct_write_raw(out, &addr->v6.sin6_addr, 16);
}

static void decode_addr(struct ct_reader *in, struct ct_addr *addr)
{
    uint8_t family = ct_read_u8(in);
    uint16_t port = ct_read_u16(in);
    const uint8_t *raw = ct_read_raw(in, family == 4 ? 4 : 16);

    *addr = (struct ct_addr){0};
    if (!raw || (family != 4 && family != 6)) {
        in->bad = true;
        return;
    }
    addr->any.sa_family = family == 4 ? AF_INET : AF_INET6;
    addr->length = family == 4 ? sizeof addr->v4 : sizeof addr->v6;
    if (family == 4)
        memcpy(&addr->v4.sin_addr, raw, 4);
    else
        memcpy(&addr->v6.sin6_addr, raw, 16);
    ct_addr_set_port(addr, port);
}

int ct_peer_encode(const struct ct_peer *peer, void *data, size_t size)
{
    struct ct_writer out;

    ct_writer_init(&out, data, size);
    ct_write_u8(&out, HELLO_VERSION);
    ct_write_u32(&out, (uint32_t)peer->rank);
    ct_write_u32(&out, (uint32_t)peer->pid);
    ct_write_u64(&out, peer->start_ticks);
    ct_write_u64(&out, peer->net_id);
    ct_write_u64(&out, peer->members);
    ct_write_str(&out, peer->host_id);
    ct_write_str(&out, peer->name);
    ct_write_u32(&out, (uint32_t)peer->segment_fd);
    ct_write_u8(&out, (uint8_t)peer->addr_count);
    for (int i = 0; i < peer->addr_count; i++)
        encode_addr(&out, &peer->addrs[i]);
    return ct_write_end(&out);
}

int ct_peer_decode(struct ct_peer *peer, const void *data, size_t length)
{
    struct ct_reader in;

    ct_reader_init(&in, data, length);
    *peer = (struct ct_peer){0};
    if (ct_read_u8(&in) != HELLO_VERSION)
        return -EBADMSG;
    peer->rank = (int)ct_read_u32(&in);
    peer->pid = (pid_t)ct_read_u32(&in);
    peer->start_ticks = ct_read_u64(&in);
    peer->net_id = ct_read_u64(&in);
    peer->members = ct_read_u64(&in);
    ct_read_str(&in, peer->host_id, sizeof peer->host_id);
    ct_read_str(&in, peer->name, sizeof peer->name);
    peer->segment_fd = (int)ct_read_u32(&in);
    peer->addr_count = ct_read_u8(&in);
    if (peer->addr_count > CT_ADDRS_MAX)
        return -EBADMSG;
    for (int i = 0; i < peer->addr_count; i++)
        decode_addr(&in, &peer->addrs[i]);
    return ct_read_end(&in);
}
