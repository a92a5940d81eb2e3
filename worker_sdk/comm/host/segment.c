/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/kernel.h"

#define USE_TCP                                                                        \
    "set CTRUN_SHM_DISABLE=1, or shm = 0 in the group's options, to use TCP instead"

enum {
    PAGE = 4096,
    SEGMENT_MAGIC = 0x63747368, /* "ctsh" */
    /* Waking a sleeper on another core costs about 30 µs: spin that long, if cores are free. */
    SPINS = 1000,
    YIELDS = 20,
    YIELDS_CROWDED = 60, /* more members than cores: let the others run */
};

struct segment_head {
    uint32_t magic;
    uint32_t size;             /* members; set before is_ready */
    _Atomic uint32_t is_ready; /* the memory has its full size */
    struct ct_verdict verdict;
};
_Static_assert(sizeof(struct segment_head) <= PAGE, "the head is one page");
_Static_assert(sizeof(struct ct_post) == PAGE, "a post is one page");

size_t ct_segment_head_bytes(void)
{
    return PAGE;
}

static size_t align_page(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t members_bytes(int size)
{
    return align_page((size_t)size * sizeof(struct ct_shm_member));
}

static size_t rings_bytes(int size)
{
    return align_page((size_t)size * (size_t)size * sizeof(struct ct_ring));
}

size_t ct_segment_bytes(int size)
{
    return members_bytes(size) + rings_bytes(size) +
           ((size_t)size + 1) * 2 * CT_CHUNK_BYTES;
}

/* Memory without a name: nothing is left in /dev/shm when all ranks are killed. */
int ct_segment_new_memory(size_t bytes)
{
    int fd = memfd_create("ctrun", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc;

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    rc = -errno;
    close(fd);
    return rc;
}

int ct_segment_create(int *out, struct ctrun_error *err)
{
    struct segment_head head = {.magic = SEGMENT_MAGIC};
    int fd = ct_segment_new_memory(PAGE);

    if (fd < 0)
        return ct_fail(err, CTRUN_E_SHM, "shared memory: memfd: %s", strerror(-fd));
    if (pwrite(fd, &head, sizeof head, 0) != sizeof head) {
        int rc = ct_fail(err, CTRUN_E_SHM, "shared memory: write: %s", strerror(errno));
        close(fd);
        return rc;
    }
    *out = fd;
    return 0;
}

/* Checked because the owner may have closed it since, and opened something else with the same
 * number. */
static bool is_memory(int fd, size_t bytes)
{
    struct stat status;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &status) == 0 &&
           status.st_size >= (off_t)bytes;
}

/* Where this process has no descriptor or memory left, TCP would fail, too. */
static int fail_shm(int error, const char *what, const char *who,
                    struct ctrun_error *err)
{
    if (ct_is_short(-error))
        return ct_fail(err, -error, "shared memory of %s: %s: %s", who, what,
                       strerror(error));
    return ct_fail(err, CTRUN_E_SHM, "shared memory of %s: %s: %s; " USE_TCP, who, what,
                   strerror(error));
}

int ct_segment_open_peer_fd(const struct ct_peer *peer, int fd, size_t bytes,
                            struct ctrun_error *err)
{
    static const char memory[] = "/memfd:";
    char who[CT_PEER_TEXT_MAX];
    char path[48];
    char target[sizeof memory] = "";
    int copy = -1;
    int error = 0;

    (void)ct_format(path, sizeof path, "/proc/%d/fd/%d", (int)peer->pid, fd);
    /* Checked before it is opened: the number may now be a FIFO or a device, where open() has an
     * effect or waits. */
    if (readlink(path, target, sizeof target - 1) < 0)
        error = errno;
    else if (strcmp(target, memory) != 0)
        error = ENOENT;
    else if ((copy = open(path, O_RDWR | O_CLOEXEC)) < 0)
        error = errno;
    else if (!is_memory(copy, bytes))
        error = ENOENT;
    if (error == 0)
        return copy;
    if (copy >= 0)
        close(copy);
    ct_peer_format(who, peer);
    if (error == ENOENT)
        return ct_fail(err, CTRUN_E_PEER_LOST, "%s has left the group or ended", who);
    return fail_shm(error, path, who, err);
}

/* The map outlives the descriptor: callers close the descriptor at once. */
static int map_file(void **out, int fd, size_t bytes, struct ctrun_error *err)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        return ct_fail(err, CTRUN_E_SHM, "shared memory: map %zu bytes: %s", bytes,
                       strerror(errno));
    *out = at;
    return 0;
}

/* A pidfd reports a death at once; if the pid belongs to a newer process, the member is dead. */
static int watch_peers(struct ct_segment *segment, struct ctrun_error *err)
{
    char who[CT_PEER_TEXT_MAX];

    segment->pidfds = ct_zalloc_array((size_t)segment->size, sizeof(int));
    segment->inboxes = ct_zalloc_array((size_t)segment->size, sizeof *segment->inboxes);
    for (int i = 0; segment->pidfds && i < segment->size; i++)
        segment->pidfds[i] = -1;
    if (!segment->pidfds || !segment->inboxes)
        return ct_fail(err, -ENOMEM, "open group: out of memory");
    for (int i = 0; i < segment->size; i++)
        ct_buf_init(&segment->inboxes[i], CT_INBOX_BYTES);
    for (int i = 0; i < segment->size; i++) {
        const struct ct_peer *peer = segment->peers[i];
        /* A member that is a thread of this process cannot die alone. */
        if (i == segment->me || peer->pid == getpid())
            continue;
        /* In this order: if the start time is right afterwards, the member still has its pid, so
         * the pidfd is that of the member. */
        segment->pidfds[i] = ct_pidfd_open(peer->pid);
        ct_peer_format(who, peer);
        if (segment->pidfds[i] < 0 && errno != ESRCH && errno != EINVAL)
            return fail_shm(errno, "pidfd_open", who, err);
        if (segment->pidfds[i] < 0 || /* EINVAL: it is being reaped right now */
            ct_small_file_has_ended(peer->pid, peer->start_ticks))
            return ct_fail(err, CTRUN_E_PEER_LOST, "open group: %s has ended meanwhile",
                           who);
    }
    return 0;
}

/* In this order: members, a ring for each pair, two stages for each member, two results; each
 * begins at a page. */
static void lay_out(struct ct_segment *segment, struct segment_head *head, void *body)
{
    unsigned char *at = body;

    segment->verdict = &head->verdict;
    segment->members = body;
    segment->rings = (void *)(at + members_bytes(segment->size));
    segment->stage = at + members_bytes(segment->size) + rings_bytes(segment->size);
    segment->result = segment->stage + (size_t)segment->size * 2 * CT_CHUNK_BYTES;
}

/* Without a body there are no bells yet: members sleep on this word of the head, and size_segment()
 * wakes all of them. */
static bool is_ready(const struct ct_segment *segment, const struct ct_wait *wait)
{
    (void)wait;
    return atomic_load(segment->ready) != 0;
}

static bool all_joined(const struct ct_segment *segment, const struct ct_wait *wait)
{
    (void)wait;
    for (int i = 0; i < segment->size; i++)
        if (!atomic_load(&segment->members[i].has_joined))
            return false;
    return true;
}

static bool is_lowest(const struct ct_segment *segment, const struct ct_wait *wait,
                      int member)
{
    (void)segment;
    (void)wait;
    return member == 0;
}

static bool is_absent(const struct ct_segment *segment, const struct ct_wait *wait,
                      int member)
{
    (void)wait;
    return !atomic_load(&segment->members[member].has_joined);
}

/* Spinning is useful if each member has a core of its own in the affinity masks. */
static void choose_patience(struct ct_segment *segment)
{
    int cores = 0;

    for (size_t word = 0; word < sizeof segment->members->cpus / sizeof(uint64_t);
         word++) {
        uint64_t mask = 0;
        for (int i = 0; i < segment->size; i++)
            mask |= segment->members[i].cpus[word];
        cores += __builtin_popcountll(mask);
    }
    segment->spins = segment->spins_now = segment->size > cores ? 0 : SPINS;
    segment->yields = segment->yields_now = segment->size > cores ? YIELDS_CROWDED
                                                                  : YIELDS;
}

/* The CPU mask is stored before has_joined: a member that sees all as joined sees all masks. */
static int join(struct ct_segment *segment, uint64_t deadline_ms,
                struct ctrun_error *err)
{
    struct ct_shm_member *self = &segment->members[segment->me];
    struct ct_wait wait = {
        .is_met = all_joined, .is_awaited = is_absent, .deadline_ms = deadline_ms};
    int rc;

    (void)sched_getaffinity(0, sizeof self->cpus, (cpu_set_t *)(void *)self->cpus);
    atomic_store(&self->has_joined, 1);
    for (int i = 0; i < segment->size; i++)
        ct_segment_wake(segment, i);
    if ((rc = ct_segment_wait(segment, &wait, err)) < 0)
        return rc;
    choose_patience(segment);
    return 0;
}

int ct_segment_open_at(struct ct_segment *segment, void *head, void *body,
                       const struct ct_segment_setup *setup, struct ctrun_error *err)
{
    int rc;

    *segment = (struct ct_segment){.size = setup->size,
                                   .me = setup->me,
                                   .peers = setup->peers,
                                   .watch = setup->watch};
    lay_out(segment, head, body);
    if ((rc = watch_peers(segment, err)) < 0)
        return rc;
    return join(segment, setup->deadline_ms, err);
}

/* The lowest member sets the size of the memory; the others wait for that. */
static int size_segment(struct ct_segment *segment, int fd,
                        const struct ct_segment_setup *setup, struct ctrun_error *err)
{
    struct segment_head *head = segment->head;
    struct ct_wait wait = {
        .is_met = is_ready, .is_awaited = is_lowest, .deadline_ms = setup->deadline_ms};

    if (head->magic != SEGMENT_MAGIC)
        return ct_fail(err, CTRUN_E_SHM,
                       "shared memory: the memory of rank %d is not that of a group",
                       setup->peers[0]->rank);
    segment->verdict = &head->verdict; /* a member that fails from here on says why */
    if (segment->me != 0)
        return ct_segment_wait(segment, &wait, err);
    if (ftruncate(fd, (off_t)(PAGE + ct_segment_bytes(segment->size))) < 0)
        return ct_fail(err, CTRUN_E_SHM, "shared memory: set the size to %zu bytes: %s",
                       PAGE + ct_segment_bytes(segment->size), strerror(errno));
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW); /* only a precaution */
    /* The ready word is stored last: a member that sees it may map the body. */
    head->size = (uint32_t)segment->size;
    atomic_store(&head->is_ready, 1);
    ct_segment_wake_all(&head->is_ready);
    return 0;
}

int ct_segment_open(struct ct_segment *segment, const struct ct_segment_setup *setup,
                    struct ctrun_error *err)
{
    const struct ct_peer *lowest = setup->peers[0];
    int fd = setup->own_fd;
    int rc;

    *segment = (struct ct_segment){.size = setup->size,
                                   .me = setup->me,
                                   .peers = setup->peers,
                                   .watch = setup->watch};
    if (setup->size > CT_LOCAL_MAX)
        return ct_fail(
            err, CTRUN_E_SHM,
            "shared memory: %d ranks on one host, at most %d are possible; " USE_TCP,
            setup->size, CT_LOCAL_MAX);
    if ((rc = watch_peers(segment, err)) < 0)
        return rc;
    if (setup->me != 0 &&
        (fd = ct_segment_open_peer_fd(lowest, lowest->segment_fd, PAGE, err)) < 0)
        return fd;
    /* Maps the head alone first: any memfd of a hello has one. The body has no pages before the
     * lowest member has set the size; an earlier access would cause SIGBUS. */
    segment->head_bytes = PAGE;
    rc = map_file(&segment->head, fd, PAGE, err);
    if (rc == 0) {
        segment->ready = &((struct segment_head *)segment->head)->is_ready;
        rc = size_segment(segment, fd, setup, err);
    }
    /* From the head on, because a page of this kernel may be larger than the head. */
    segment->body_bytes = PAGE + ct_segment_bytes(setup->size);
    if (rc == 0)
        rc = map_file(&segment->body, fd, segment->body_bytes, err);
    if (setup->me != 0)
        close(fd);
    if (rc < 0)
        return rc;
    lay_out(segment, segment->head, (unsigned char *)segment->body + PAGE);
    return join(segment, setup->deadline_ms, err);
}

/* Sets has_left before anything is unmapped, so that others see that we left, not a death. The
 * memory is freed with its last map. Accepts a zeroed or half-open segment. */
void ct_segment_close(struct ct_segment *segment)
{
    if (segment->members) {
        atomic_store(&segment->members[segment->me].has_left, 1);
        for (int i = 0; i < segment->size; i++)
            ct_segment_wake(segment, i);
    }
    for (int i = 0; segment->pidfds && i < segment->size; i++)
        if (segment->pidfds[i] >= 0)
            close(segment->pidfds[i]);
    free(segment->pidfds);
    for (int i = 0; segment->inboxes && i < segment->size; i++)
        ct_buf_deinit(&segment->inboxes[i]);
    free(segment->inboxes);
    if (segment->body)
        munmap(segment->body, segment->body_bytes);
    if (segment->head)
        munmap(segment->head, segment->head_bytes);
    *segment = (struct ct_segment){0};
}
