/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the members of a host share, and waits in it.
 *
 * It is a memfd of the lowest member on the host, which the others open as /proc/PID/fd/FD: it has
 * no name, so that nothing is left behind when processes are killed, and the size of /dev/shm (64
 * MiB in a container) does not matter.
 *
 * Layout, for n members:
 *
 *     head       one page: ready word, verdict
 *     member[n]  two posts each (odd and even numbers), bell, sleep flags
 *     ring[n*n]  byte queue from member i to member j, for send and recv
 *     stage[n]   two chunks each of a member's data on their way to the others
 *     result     two chunks of results
 *
 * Posting and waiting. Each barrier has the next number s. A member posts s in post[s & 1], with up
 * to CT_POST_BYTES of data, and waits until every member has posted s. It can overwrite post[s & 1]
 * only with s + 2, and gets there only when all have posted s + 1, which they do after they have
 * read s: two posts for each member are enough, and nothing is reset.
 *
 * A member that waits spins briefly, then yields, then sleeps on its own bell. Spins are useful
 * when each member has a processor, yields when members share one. If neither has ended recent
 * waits, as on a machine that is busy with other programs, their number is reduced. A sleeper
 * cannot miss its bell: it reads the bell, sets its flag, and only then checks again whether it
 * must sleep; a waker publishes, and only then reads the flags. All four accesses are sequentially
 * consistent, so one side sees the other. Of the members that post the same number at least one,
 * the last in that order, sees all posts: it alone rings. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/comm/backend/verdict.h"
#include "worker_sdk/comm/host/discover.h"

enum {
    CT_LOCAL_MAX = 512, /* members of one segment; larger hosts are rare */
    CT_POST_BYTES = 4096 - 32,
    CT_RING_BYTES = 32768, /* a power of two; half an L1 cache */
    /* of a peer's messages that were received before a call asked for them */
    CT_INBOX_BYTES = 1 << 28,
    CT_CHUNK_BYTES = 131072, /* four such chunks stay in a 1 MiB L2 cache */
    CT_LINE = 128, /* two cache lines, because a fetch brings the neighbour, too */
};

struct ct_post {
    _Atomic uint64_t number;
    uint64_t what;  /* kind, dtype, op, root of the call: equal on all members */
    uint64_t count; /* equal on all members, too */
    uint64_t where; /* 0, or region and offset of the data: if equal on all, no copy */
    unsigned char data[CT_POST_BYTES];
};

/* Threads of a member, as bits. */
enum ct_sleeper {
    CT_SLEEPER_CALL = 1,   /* in ct_segment_wait() */
    CT_SLEEPER_HELPER = 2, /* in ct_segment_rest() */
};

struct ct_shm_member {
    struct ct_post post[2];
    _Alignas(CT_LINE) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers; /* enum ct_sleeper, which sleep on the bell */
    _Atomic uint32_t has_joined;
    _Atomic uint32_t has_left;
    uint64_t cpus[16];      /* its affinity mask: 1024 processors */
    _Atomic uint32_t looks; /* grows in each slice of a wait of the program */
    /* Of that wait: its call, and 1 + the first member that it needs; 0: there is none. */
    _Atomic uint32_t waits_in, waits_for;
    /* Pieces of its slice that were ever claimed, and finished, by any member: see host_shm.c. */
    _Alignas(CT_LINE) _Atomic uint64_t claimed;
    _Alignas(CT_LINE) _Atomic uint64_t finished;
    _Atomic uint32_t is_claiming; /* it may be reducing a piece */
};

struct ct_ring {
    _Alignas(CT_LINE) _Atomic uint64_t written; /* bytes put in since the start */
    _Alignas(CT_LINE) _Atomic uint64_t taken;   /* bytes taken out since the start */
    _Alignas(CT_LINE) unsigned char data[CT_RING_BYTES];
};

struct ct_segment {
    int size; /* members on this host */
    int me;   /* our index among them */
    struct ct_verdict *verdict;
    struct ct_shm_member *members;
    struct ct_ring *rings;
    unsigned char *stage;
    unsigned char *result;
    const struct ct_peer *const *peers; /* kept; by local index */
    struct ct_watch watch;
    int *pidfds;
    struct ct_buf *inboxes; /* by member: data that arrived while we sent, see ring.h */
    int spins;              /* most checks before the first sched_yield() */
    int spins_now;          /* current limit, set by adapt() in segment_wait.c */
    int yields;             /* most yields before the first sleep */
    int yields_now;         /* likewise */
    uint64_t looked_ms;     /* last time of ct_segment_look() */
    bool has_helper;        /* the thread that calls ct_segment_arm() */
    pthread_t helper;
    uint32_t
        noted[CT_LOCAL_MAX]; /* the looks of all members at noted_ms, shortly before */
    uint64_t noted_ms, noted_for_ms; /* this deadline of a wait in a row */
    /* in the head: members sleep on it while there are no bells */
    _Atomic uint32_t *ready;
    void *head;
    size_t head_bytes;
    void *body; /* of our own map; the head comes first */
    size_t body_bytes;
};

/* Makes a new memfd with the head in it, for the hello: any member may become the lowest. */
int ct_segment_create(int *out, struct ctrun_error *err);

struct ct_segment_setup {
    const struct ct_peer *const *peers; /* kept; size entries, lowest member first */
    int size;
    int me;
    int own_fd; /* from ct_segment_create(); borrowed, may be closed afterwards */
    struct ct_watch watch;
    uint64_t deadline_ms;
};
/* Maps the lowest member's segment and waits until all have done so. CTRUN_E_SHM: it cannot be
 * shared; CTRUN_E_PEER_LOST: a member has ended; CTRUN_E_TIMEOUT: a member did not come. */
int ct_segment_open(struct ct_segment *segment, const struct ct_segment_setup *setup,
                    struct ctrun_error *err);
/* The same on memory that all members have mapped at one place: threads as members, for tests
 * under the thread sanitizer. `body` has ct_segment_bytes(size) zeroed bytes. */
int ct_segment_open_at(struct ct_segment *segment, void *head, void *body,
                       const struct ct_segment_setup *setup, struct ctrun_error *err);
size_t ct_segment_head_bytes(void);
size_t ct_segment_bytes(int size);
/* Sets has_left for the others, and unmaps. Accepts a zeroed or half-open segment. */
void ct_segment_close(struct ct_segment *segment);

/* A memfd of `bytes` bytes, sealed against shrinking; -errno on failure. */
int ct_segment_new_memory(size_t bytes);
/* Opens memory of at least `bytes` bytes that is descriptor `fd` of that member's process. Returns
 * a new descriptor. CTRUN_E_PEER_LOST when the process has ended or closed it, CTRUN_E_SHM when the
 * kernel refuses, -EMFILE and the like where this process has no descriptor or memory left. `err` may be NULL. */
int ct_segment_open_peer_fd(const struct ct_peer *peer, int fd, size_t bytes,
                            struct ctrun_error *err);

/* The condition of a wait. is_met must be cheap; is_awaited tells whether the wait still needs
 * something of that member. */
struct ct_wait {
    bool (*is_met)(const struct ct_segment *segment, const struct ct_wait *wait);
    bool (*is_awaited)(const struct ct_segment *segment, const struct ct_wait *wait,
                       int member);
    uint64_t number; /* of the post, or bytes of the ring */
    int peer;
    const struct ct_call *call; /* for the message */
    uint64_t deadline_ms;
    bool is_in_row; /* what is_awaited names may wait for another member in turn */
    /* NULL, or: a negative code if the wait can never end, unless it is met by now. */
    int (*check)(const struct ct_segment *segment, const struct ct_wait *wait,
                 struct ctrun_error *err);
};
/* 0, or the error that ends the wait: a member ended or left, the watch or the verdict reports a
 * failure, the deadline passed. */
int ct_segment_wait(struct ct_segment *segment, const struct ct_wait *wait,
                    struct ctrun_error *err);
/* For a caller that tries again instead of waiting: 0, or the error that would end the wait. Looks
 * for members that are gone once in CT_SLICE_MS. Never blocks. */
int ct_segment_look(struct ct_segment *segment, const struct ct_wait *wait,
                    struct ctrun_error *err);

/* For the helper thread of a member (queue.c): ct_segment_arm() comes before its last look, and
 * after that ct_segment_rest() sleeps, if `sleeps`, until a bell has rung since, or CT_SLICE_MS. */
uint32_t ct_segment_arm(struct ct_segment *segment);
void ct_segment_rest(struct ct_segment *segment, uint32_t bell, bool sleeps);

/* Posts `number` (what, count, where and data are filled in before); the last member to post wakes
 * the others. */
void ct_segment_post(struct ct_segment *segment, uint64_t number);
static inline struct ct_post *ct_segment_get_post(const struct ct_segment *segment,
                                                  int member, uint64_t number)
{
    return &segment->members[member].post[number & 1];
}
/* The post of `member` that comes after our last one; NULL: it has none. */
const struct ct_post *ct_segment_find_next_post(const struct ct_segment *segment,
                                                int member);
/* The wait until every member has posted `number`. */
struct ct_wait ct_segment_posts_wait(uint64_t number, const struct ct_call *call);
/* Wakes `member` if it sleeps; called after a change that it may wait for. */
void ct_segment_wake(struct ct_segment *segment, int member);
/* Wakes without checking whether the member sleeps; `member` may be ourselves. */
void ct_segment_ring(struct ct_segment *segment, int member);
/* Wakes all that sleep on this word. */
void ct_segment_wake_all(_Atomic uint32_t *word);
