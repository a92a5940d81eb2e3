/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    HELLO_VERSION = 1,
    TABLE_GRACE_MS =
        3000,      /* member 0 has our deadline and still must tell who is missing */
    PROBE_MS = 20, /* a store answers a question about one key well within */
    PROBE_ALL_MS = 1000,
    NAMES_MAX = 8, /* missing ranks named in a message; the rest are counted */
};

static uint64_t namespace_id(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? 0 : (uint64_t)st.st_ino;
}

uint64_t ct_peer_start_ticks(pid_t pid)
{
    char path[40];
    char stat_text[1024];
    const char *at;
    ssize_t length;
    uint64_t ticks = 0;
    int fd;

    (void)ct_format(path, sizeof path, "/proc/%d/stat", (int)pid);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return 0;
    length = read(fd, stat_text, sizeof stat_text - 1);
    close(fd);
    stat_text[length > 0 ? length : 0] = '\0';
    if (!(at = strrchr(stat_text, ')'))) /* the name may hold blanks and brackets */
        return 0;
    for (int field = 2; field < 22 && at; field++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoull(at + 1, NULL, 10);
    return ticks;
}

static uint64_t permitted_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0)
        return 0;
    return (uint64_t)data[1].permitted << 32 | data[0].permitted;
}

enum {
    BOOT_ID_MAX = 40
};

/* Names this start of this kernel; empty when it cannot be read. */
static void read_boot_id(char *dst)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, dst, 36);

    if (fd >= 0)
        close(fd);
    dst[length == 36 ? 36 : 0] = '\0';
}

/* The number of a namespace is unique on one kernel only (the first has the same everywhere):
 * mix in the kernel's. FNV-1a. */
static uint64_t find_net_id(void)
{
    char boot_id[BOOT_ID_MAX];
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ namespace_id("/proc/self/ns/net");

    read_boot_id(boot_id);
    for (const char *at = boot_id; *at; at++)
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    return hash;
}

/* Two processes share memory when one may open the other's /proc/PID/fd: same kernel, pid and
 * user namespace, user and capabilities. /dev/shm is the sign by which containers are told to
 * share memory or not, so it must be the same, too. */
static void find_host_id(char *dst, size_t size, int rank)
{
    char boot_id[BOOT_ID_MAX];
    struct stat shm = {0};

    read_boot_id(boot_id);
    (void)stat("/dev/shm", &shm);
    (void)ct_format(dst, size, "%s/%lx:%lx/%lx/%lx/%u/%lx", boot_id,
                    (unsigned long)shm.st_dev, (unsigned long)shm.st_ino,
                    (unsigned long)namespace_id("/proc/self/ns/pid"),
                    (unsigned long)namespace_id("/proc/self/ns/user"), geteuid(),
                    (unsigned long)permitted_capabilities());
    if (!*boot_id ||
        prctl(PR_GET_DUMPABLE) != 1) /* nobody may look into us: be alone */
        (void)ct_format(dst, size, "alone/%d", rank);
}

void ct_peer_describe_self(struct ct_peer *peer, const struct ct_backend_setup *setup)
{
    *peer = (struct ct_peer){.rank = setup->place->rank,
                             .pid = getpid(),
                             .start_ticks = ct_peer_start_ticks(getpid()),
                             .net_id = find_net_id(),
                             .segment_fd = -1};
    if (gethostname(peer->name, sizeof peer->name - 1) < 0)
        (void)ct_copy(peer->name, sizeof peer->name, "?");
    if (setup->place->host_id)
        (void)ct_copy(peer->host_id, sizeof peer->host_id, setup->place->host_id);
    else if (setup->options->shm)
        find_host_id(peer->host_id, sizeof peer->host_id, peer->rank);
    else
        (void)ct_format(peer->host_id, sizeof peer->host_id, "alone/%d", peer->rank);
}

void ct_peer_format(char *dst, const struct ct_peer *peer)
{
    (void)ct_format(dst, CT_PEER_TEXT_MAX, "rank %d (pid %d on %s)", peer->rank,
                    (int)peer->pid, peer->name);
}

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

static int key_format(char *key, const struct ct_backend_setup *setup, const char *what,
                      int member)
{
    return member < 0 ? ct_format(key, CT_BOOTSTRAP_KEY_MAX, "%s/%s", setup->key, what)
                      : ct_format(key, CT_BOOTSTRAP_KEY_MAX, "%s/%s/%d", setup->key,
                                  what, member);
}

/* Asks the store for each hello and puts the ranks that have none into err. */
static int fail_missing(const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    uint64_t end_ms = ct_deadline_ms(PROBE_ALL_MS);
    char key[CT_BOOTSTRAP_KEY_MAX];
    char names[160] = "";
    size_t used = 0;
    int missing = 0;

    for (int i = 0; i < setup->size && ct_left_ms(end_ms) > 0; i++) {
        (void)key_format(key, setup, "hello", i);
        if (store->wait(store->context, key, ct_deadline_ms(PROBE_MS), NULL) == 0)
            continue;
        if (missing++ < NAMES_MAX) {
            int n = ct_format(names + used, sizeof names - used, "%s%d",
                              missing > 1 ? ", " : "", setup->ranks[i]);
            used += n > 0 ? (size_t)n : 0;
        }
    }
    return ct_fail(err, CTRUN_E_TIMEOUT,
                   "open group: %d of %d members did not come: rank %s%s", missing,
                   setup->size, missing ? names : "? (they came too late)",
                   missing > NAMES_MAX ? ", ..." : "");
}

/* Member 0: reads all hellos as they come, into the body of the table. */
static int gather(struct ct_writer *out, const struct ct_backend_setup *setup,
                  struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    char key[CT_BOOTSTRAP_KEY_MAX];
    size_t length;
    void *hello;
    int rc;

    for (int i = 0; i < setup->size; i++) {
        (void)key_format(key, setup, "hello", i);
        if ((rc = store->get(store->context, key, &hello, &length, setup->deadline_ms,
                             err)) < 0)
            return rc == CTRUN_E_TIMEOUT ? fail_missing(setup, err) : rc;
        if (length > CT_HELLO_MAX_BYTES)
            rc = ct_fail(err, CTRUN_E_PROTOCOL, "open group: rank %d: hello too long",
                         setup->ranks[i]);
        else
            ct_write_blob(out, hello, length);
        free(hello);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Member 0: publishes the table, or why there is none. */
static int publish(const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    size_t size = 64 + (size_t)setup->size * (CT_HELLO_MAX_BYTES + 4) +
                  CTRUN_ERROR_TEXT_MAX;
    unsigned char cookie[CT_COOKIE_BYTES];
    struct ctrun_error why = {.code = 0};
    char key[CT_BOOTSTRAP_KEY_MAX];
    struct ct_writer out;
    unsigned char *table;
    int rc;

    if (getrandom(cookie, sizeof cookie, 0) != sizeof cookie)
        return ct_fail(err, -errno, "open group: no random bytes: %s", strerror(errno));
    if (!(table = ct_zalloc(size)))
        return ct_fail(err, -ENOMEM, "open group: no memory for %d members",
                       setup->size);
    ct_writer_init(&out, table, size);
    ct_write_i64(&out, 0);
    ct_write_raw(&out, cookie, sizeof cookie);
    if ((rc = gather(&out, setup, &why)) < 0) {
        ct_writer_init(&out, table, size);
        ct_write_i64(&out, rc);
        ct_write_str(&out, why.text);
    }
    (void)key_format(key, setup, "table", -1);
    rc = store->set(store->context, key, table, out.length,
                    ct_deadline_ms(TABLE_GRACE_MS), err);
    free(table);
    return rc;
}

static int read_table(struct ct_peer *peers, unsigned char *cookie, const void *table,
                      size_t length, const struct ct_backend_setup *setup,
                      struct ctrun_error *err)
{
    char text[CTRUN_ERROR_TEXT_MAX];
    struct ct_reader in;
    const uint8_t *raw;
    int64_t code;

    ct_reader_init(&in, table, length);
    if ((code = ct_read_i64(&in)) < 0) {
        ct_read_str(&in, text, sizeof text);
        return ct_fail(err, (int)code, "%s",
                       ct_read_end(&in) < 0 ? "open group" : text);
    }
    if ((raw = ct_read_raw(&in, CT_COOKIE_BYTES)))
        memcpy(cookie, raw, CT_COOKIE_BYTES);
    for (int i = 0; i < setup->size; i++) {
        size_t bytes;
        const uint8_t *hello = ct_read_blob(&in, CT_HELLO_MAX_BYTES, &bytes);
        if (!hello || ct_peer_decode(&peers[i], hello, bytes) < 0 ||
            peers[i].rank != setup->ranks[i])
            return ct_fail(err, CTRUN_E_PROTOCOL,
                           "open group: the hello of rank %d is damaged",
                           setup->ranks[i]);
    }
    if (ct_read_end(&in) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL, "open group: the table is damaged");
    return 0;
}

int ct_meet(struct ct_peer *peers, unsigned char *cookie,
            const struct ct_backend_setup *setup, struct ctrun_error *err)
{
    const struct ct_bootstrap *store = &setup->place->bootstrap;
    unsigned char hello[CT_HELLO_MAX_BYTES];
    char key[CT_BOOTSTRAP_KEY_MAX];
    uint64_t table_ms;
    size_t length;
    void *table;
    int rc = ct_peer_encode(&peers[setup->me], hello, sizeof hello);

    if (rc < 0)
        return ct_fail(err, rc, "open group: this rank's hello is too long");
    (void)key_format(key, setup, "hello", setup->me);
    if ((rc = store->set(store->context, key, hello, (size_t)rc, setup->deadline_ms,
                         err)) < 0)
        return ct_wrap(err, "open group");
    if (setup->me == 0 && (rc = publish(setup, err)) < 0)
        return rc;
    table_ms = setup->deadline_ms + TABLE_GRACE_MS;
    if (table_ms < setup->deadline_ms)
        table_ms = setup->deadline_ms;
    (void)key_format(key, setup, "table", -1);
    rc = store->get(store->context, key, &table, &length, table_ms, err);
    if (rc < 0)
        return rc == CTRUN_E_TIMEOUT ? fail_missing(setup, err)
                                     : ct_wrap(err, "open group");
    rc = read_table(peers, cookie, table, length, setup, err);
    free(table);
    return rc;
}
