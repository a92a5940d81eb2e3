/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/host_shm.h"

#include <errno.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/host/reduce.h"
#include "worker_sdk/comm/host/region.h"
#include "worker_sdk/comm/host/small.h"

enum {
    SLICE_ALIGN = 64,    /* bytes: no two members write to one cache line */
    PIECE_BYTES = 65536, /* bytes claimed at once in a direct all-reduce */
};

enum plan {
    PLAN_TINY,
    PLAN_DIRECT,
    PLAN_STAGED
};

/* Used by one thread at a time; only what `segment` and `regions` map is shared with the other
 * members. */
struct ct_host_shm {
    struct ct_segment segment;
    uint64_t number; /* of the last post */
    struct ct_regions regions;
    /* The call that runs. */
    struct ct_call call;
    enum plan plan;
    size_t step;
    size_t chunk_bytes; /* the last one may be shorter */
    size_t chunks;
    uint64_t
        pieces; /* pieces of each slice in all direct calls so far, this one included */
};

/* The part of `bytes` that member works on. */
struct slice {
    size_t start;
    size_t bytes;
};

/* All members cut alike, since they share no other information about slices. The last slices may be
 * short or empty. */
static struct slice slice_of(const struct ct_host_shm *shm, size_t bytes, int member)
{
    size_t size = (size_t)shm->segment.size;
    size_t each = (bytes / size + SLICE_ALIGN) / SLICE_ALIGN * SLICE_ALIGN;
    size_t start = each * (size_t)member < bytes ? each * (size_t)member : bytes;

    return (struct slice){start, bytes - start < each ? bytes - start : each};
}

/* Takes ownership of the segment: it is closed here, whether this succeeds or not. */
int ct_host_shm_create(struct ct_host_shm **out, struct ct_segment *segment,
                       struct ctrun_error *err)
{
    struct ct_host_shm *shm = ct_zalloc(sizeof *shm);

    if (!shm) {
        ct_segment_close(segment);
        return ct_fail(err, -ENOMEM, "open group: out of memory");
    }
    shm->segment = *segment;
    shm->regions = (struct ct_regions){.size = segment->size, .me = segment->me};
    *segment = (struct ct_segment){0};
    *out = shm;
    return 0;
}

struct ct_segment *ct_host_shm_segment(struct ct_host_shm *shm)
{
    return &shm->segment;
}

void ct_host_shm_destroy(struct ct_host_shm *shm)
{
    if (!shm)
        return;
    ct_regions_deinit(&shm->regions);
    ct_segment_close(&shm->segment);
    free(shm);
}

void ct_host_shm_abort(struct ct_host_shm *shm, int code, const char *text)
{
    (void)ct_verdict_set(shm->segment.verdict, code, text); /* the first reason stays */
    for (int i = 0; i < shm->segment.size; i++)
        ct_segment_wake(&shm->segment, i);
    /* Our own thread may be the one that sleeps: it checks the verdict within CT_SLICE_MS. */
}

int ct_host_shm_get_verdict(const struct ct_host_shm *shm, struct ctrun_error *err)
{
    return ct_verdict_get(shm->segment.verdict, err);
}

/* ---- What the members agree on ---------------------------------------------------------- */

/* Kind, type, operation, pass and peer in one word, so that members compare calls in one
 * comparison. */
static uint64_t what_of(const struct ct_call *call)
{
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 |
           (uint64_t)call->op << 16 | (uint64_t)call->pass << 24 |
           (uint64_t)(uint32_t)call->peer << 32;
}

static struct ct_post *post_of(const struct ct_host_shm *shm, int member)
{
    return ct_segment_get_post(&shm->segment, member, shm->number);
}

struct ct_call ct_host_shm_read_post(const struct ct_post *post)
{
    return (struct ct_call){.kind = (enum ct_call_kind)(post->what & 0xff),
                            .dtype = (enum ctrun_dtype)(post->what >> 8 & 0xff),
                            .op = (enum ctrun_op)(post->what >> 16 & 0xff),
                            .pass = (uint8_t)(post->what >> 24 & 0xff),
                            .peer = (int)(post->what >> 32),
                            .count = post->count};
}

/* The posts of member i and of the first one differ. */
static int fail_disagreement(const struct ct_host_shm *shm, int i,
                             struct ctrun_error *err)
{
    const struct ct_call first = ct_host_shm_read_post(post_of(shm, 0));
    const struct ct_call other = ct_host_shm_read_post(post_of(shm, i));
    char number[40] = ""; /* group alloc is no numbered collective */
    char a[CT_CALL_TEXT_MAX];
    char b[CT_CALL_TEXT_MAX];

    if (shm->call.number)
        (void)ct_format(number, sizeof number,
                        "collective %llu: ", (unsigned long long)shm->call.number);
    ct_call_format(a, &first);
    ct_call_format(b, &other);
    return ct_fail(err, CTRUN_E_MISMATCH, "%srank %d calls %s, rank %d calls %s%s",
                   number, shm->segment.peers[0]->rank, a, shm->segment.peers[i]->rank,
                   b, ct_call_difference(&first, &other));
}

/* Each member compares all posts with the first one, so all find the same difference. */
static int check_agreement(struct ct_host_shm *shm, struct ctrun_error *err)
{
    const struct ct_post *first = post_of(shm, 0);
    bool same_place = true;

    for (int i = 1; i < shm->segment.size; i++) {
        const struct ct_post *post = post_of(shm, i);
        if (post->what != first->what || post->count != first->count)
            return fail_disagreement(shm, i, err);
        same_place = same_place && post->where == first->where;
    }
    /* All members see the same posts and so choose the same plan without another barrier. */
    if (ct_call_in_bytes(&shm->call, shm->segment.size) <= CT_POST_BYTES)
        shm->plan = PLAN_TINY;
    else if (same_place && first->where != 0)
        shm->plan = PLAN_DIRECT;
    else
        shm->plan = PLAN_STAGED;
    return 0;
}

/* ---- The steps -------------------------------------------------------------------------- */

/* A post is a barrier: no member takes step k + 1 before every member has posted k + 1, that is,
 * has done step k. Posts alternate between two pages (ct_segment_get_post), so a post that is still
 * read is not overwritten: its owner is one step ahead at most. */
static void next_post(struct ct_host_shm *shm)
{
    ct_segment_post(&shm->segment, ++shm->number);
}

/* Reads all posts: no member overwrites its post before we have posted again. */
static void finish_tiny(struct ct_host_shm *shm)
{
    const void *parts[CT_LOCAL_MAX];

    for (int i = 0; i < shm->segment.size; i++)
        parts[i] = post_of(shm, i)->data;
    ct_small_finish(&shm->call, shm->segment.size, shm->segment.me, parts);
}

/* A direct all-reduce cuts each member's slice into pieces that are claimed one by one. Each member
 * takes its own pieces first and then unclaimed pieces of the others, so that a member that lost
 * its processor delays one piece at most. The result of a piece does not depend on the member that
 * reduces it. The counters only grow, by the same number of pieces for each slice and call, so
 * nothing is reset. */
static uint64_t piece_count(const struct ct_host_shm *shm)
{
    return (slice_of(shm, shm->call.bytes, 0).bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* Each piece is taken by exactly one member: only the member that saw the counter's last value can
 * increment it. */
static bool claim_piece(struct ct_shm_member *owner, uint64_t end, uint64_t *piece)
{
    *piece = atomic_load(&owner->claimed);
    while (*piece < end)
        if (atomic_compare_exchange_weak(&owner->claimed, piece, *piece + 1))
            return true;
    return false;
}

/* Reduces the k-th piece of the slice of `owner`, for all members; empty if the slice ends before
 * it. */
static void reduce_piece(const struct ct_host_shm *shm, int owner, uint64_t k)
{
    const struct ct_call *call = &shm->call;
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};
    struct slice slice = slice_of(shm, call->bytes, owner);
    size_t at = (size_t)k * PIECE_BYTES;
    size_t left = slice.bytes > at ? slice.bytes - at : 0;
    uint64_t where = post_of(shm, 0)->where;
    const void *src[CT_LOCAL_MAX];
    void *dst[CT_LOCAL_MAX];

    for (int i = 0; i < shm->segment.size; i++)
        src[i] = dst[i] = ct_regions_at(&shm->regions, where, i) + slice.start + at;
    ct_reduce(&how, dst, shm->segment.size, src, shm->segment.size,
              (left < PIECE_BYTES ? left : PIECE_BYTES) /
                  ctrun_dtype_size(call->dtype));
}

/* `finished` is incremented after the stores of the piece (sequentially consistent): a member that
 * sees the count sees the result. */
static bool pieces_are_done(const struct ct_segment *segment,
                            const struct ct_wait *wait)
{
    for (int i = 0; i < segment->size; i++)
        if (atomic_load(&segment->members[i].finished) < wait->number)
            return false;
    return true;
}

/* A member that dies while it claims pieces ends the call, because its piece is never finished. A
 * member that dies before that is not needed: the others reduce its slice. */
static bool is_claiming(const struct ct_segment *segment, const struct ct_wait *wait,
                        int member)
{
    return atomic_load(&segment->members[member].is_claiming) != 0 &&
           !pieces_are_done(segment, wait);
}

static struct ct_wait pieces_wait(const struct ct_host_shm *shm)
{
    return (struct ct_wait){.is_met = pieces_are_done,
                            .is_awaited = is_claiming,
                            .number = shm->pieces,
                            .call = &shm->call,
                            .deadline_ms = shm->call.deadline_ms};
}

/* Reduces the unclaimed pieces of the slices of `count` members, our slice first. */
static void reduce_unclaimed(struct ct_host_shm *shm, int count)
{
    struct ct_segment *segment = &shm->segment;
    const struct ct_wait wait = pieces_wait(shm);
    uint64_t begin = shm->pieces - piece_count(shm);
    uint64_t piece;

    atomic_store(&segment->members[segment->me].is_claiming, 1);
    for (int i = 0; i < count; i++) {
        int member = (segment->me + i) % segment->size;
        struct ct_shm_member *owner = &segment->members[member];
        while (claim_piece(owner, shm->pieces, &piece)) {
            reduce_piece(shm, member, piece - begin);
            atomic_fetch_add(&owner->finished, 1);
        }
    }
    atomic_store(&segment->members[segment->me].is_claiming, 0);
    for (int i = 0; pieces_are_done(segment, &wait) && i < segment->size; i++)
        ct_segment_wake(segment, i);
}

/* Each member has two buffers, chosen by the parity of the chunk: while chunk k is staged, k - 1 is
 * reduced and k - 2 copied out. The barrier between the steps prevents a buffer from being written
 * before all have read it. */
static unsigned char *stage_of(const struct ct_host_shm *shm, int member, size_t chunk)
{
    return shm->segment.stage + ((size_t)member * 2 + (chunk & 1)) * CT_CHUNK_BYTES;
}

static unsigned char *result_of(const struct ct_host_shm *shm, size_t chunk)
{
    return shm->segment.result + (chunk & 1) * CT_CHUNK_BYTES;
}

static size_t chunk_bytes(const struct ct_host_shm *shm, size_t chunk)
{
    size_t left = shm->call.bytes - chunk * shm->chunk_bytes;

    return left < shm->chunk_bytes ? left : shm->chunk_bytes;
}

/* Copies a chunk without our own slice, which needs no staging. */
static void copy_others(const struct ct_host_shm *shm, unsigned char *dst,
                        const unsigned char *src, size_t bytes)
{
    struct slice own = slice_of(shm, bytes, shm->segment.me);
    size_t end = own.start + own.bytes;

    memcpy(dst, src, own.start);
    memcpy(dst + end, src + end, bytes - end);
}

static bool gets_result(const struct ct_host_shm *shm)
{
    return shm->call.kind == CT_CALL_ALL_REDUCE || shm->call.peer == shm->segment.me;
}

static void reduce_chunk(struct ct_host_shm *shm, size_t chunk)
{
    const struct ct_call *call = &shm->call;
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};
    struct slice own = slice_of(shm, chunk_bytes(shm, chunk), shm->segment.me);
    size_t at = chunk * CT_CHUNK_BYTES + own.start;
    void *dst[2] = {result_of(shm, chunk) + own.start};
    const void *src[CT_LOCAL_MAX];

    if (gets_result(shm))
        dst[1] = (unsigned char *)call->out + at;

    for (int i = 0; i < shm->segment.size; i++)
        src[i] = stage_of(shm, i, chunk) + own.start;
    /* Our own slice was not staged: it is read from the caller's memory. */
    src[shm->segment.me] = (const unsigned char *)call->in + at;
    ct_reduce(&how, dst, dst[1] ? 2 : 1, src, shm->segment.size,
              own.bytes / ctrun_dtype_size(call->dtype));
}

/* Stages chunk k, reduces k-1, copies k-2 out. True after the last step. Used by reduce as well. */
static bool step_all_reduce(struct ct_host_shm *shm, size_t k)
{
    const unsigned char *in = shm->call.in;
    unsigned char *out = shm->call.out;

    if (k < shm->chunks)
        copy_others(shm, stage_of(shm, shm->segment.me, k), in + k * CT_CHUNK_BYTES,
                    chunk_bytes(shm, k));
    if (k >= 1 && k - 1 < shm->chunks)
        reduce_chunk(shm, k - 1);
    if (k >= 2 && gets_result(shm))
        copy_others(shm, out + (k - 2) * CT_CHUNK_BYTES, result_of(shm, k - 2),
                    chunk_bytes(shm, k - 2));
    return k == shm->chunks + 1;
}

/* A chunk is a piece of each member's part: stages chunk k, reduces our own part of k-1. */
static bool step_reduce_scatter(struct ct_host_shm *shm, size_t k)
{
    const struct ct_call *call = &shm->call;
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};
    const unsigned char *in = call->in;
    const void *src[CT_LOCAL_MAX];
    size_t piece = shm->chunk_bytes;
    size_t at = k * piece;
    int size = shm->segment.size;
    int me = shm->segment.me;
    void *out;

    for (int i = 0; k < shm->chunks && i < size; i++)
        if (i != me)
            memcpy(stage_of(shm, me, k) + (size_t)i * piece,
                   in + (size_t)i * call->bytes + at, chunk_bytes(shm, k));
    if (k == 0)
        return false;
    at -= piece;
    for (int i = 0; i < size; i++)
        src[i] = stage_of(shm, i, k - 1) + (size_t)me * piece;
    src[me] = in + (size_t)me * call->bytes + at;
    out = (unsigned char *)call->out + at;
    ct_reduce(&how, &out, 1, src, size,
              chunk_bytes(shm, k - 1) / ctrun_dtype_size(call->dtype));
    return k == shm->chunks;
}

static bool step_broadcast(struct ct_host_shm *shm, size_t k)
{
    const struct ct_call *call = &shm->call;
    bool is_root = call->peer == shm->segment.me;

    if (is_root && k == 0 && call->in != call->out)
        memcpy(call->out, call->in, call->bytes);
    if (is_root && k < shm->chunks)
        memcpy(result_of(shm, k), (const unsigned char *)call->in + k * CT_CHUNK_BYTES,
               chunk_bytes(shm, k));
    if (!is_root && k >= 1)
        memcpy((unsigned char *)call->out + (k - 1) * CT_CHUNK_BYTES,
               result_of(shm, k - 1), chunk_bytes(shm, k - 1));
    return k == shm->chunks;
}

static bool step_all_gather(struct ct_host_shm *shm, size_t k)
{
    const struct ct_call *call = &shm->call;
    int me = shm->segment.me;
    unsigned char *own = (unsigned char *)call->out + (size_t)me * call->bytes;

    if (k < shm->chunks)
        memcpy(stage_of(shm, me, k),
               (const unsigned char *)call->in + k * CT_CHUNK_BYTES,
               chunk_bytes(shm, k));
    for (int i = 0; k >= 1 && i < shm->segment.size; i++)
        if (i != me)
            memcpy((unsigned char *)call->out + (size_t)i * call->bytes +
                       (k - 1) * CT_CHUNK_BYTES,
                   stage_of(shm, i, k - 1), chunk_bytes(shm, k - 1));
    if (k == shm->chunks && own != call->in)
        memcpy(own, call->in, call->bytes);
    return k == shm->chunks;
}

/* The data are in memory that all members have mapped, so nothing is staged. After the last step no
 * member reads another's block any more, so that its owner may write to it. */
static bool step_direct(struct ct_host_shm *shm, size_t k)
{
    const struct ct_call *call = &shm->call;

    if (k == 1)
        return true;
    if (call->kind == CT_CALL_ALL_REDUCE) {
        shm->pieces += piece_count(shm);
        reduce_unclaimed(shm, 1);
    } else if (call->peer != shm->segment.me)
        memcpy(call->out,
               ct_regions_at(&shm->regions, post_of(shm, 0)->where, call->peer),
               call->bytes);
    return false;
}

/* All members have reached the current barrier: takes the next step. True after the last step. */
static bool take_step(struct ct_host_shm *shm)
{
    size_t k = shm->step++;

    if (shm->plan == PLAN_TINY) {
        finish_tiny(shm);
        return true;
    }
    if (shm->plan == PLAN_DIRECT)
        return step_direct(shm, k);
    switch (shm->call.kind) {
    case CT_CALL_ALL_REDUCE:
    case CT_CALL_REDUCE: return step_all_reduce(shm, k);
    case CT_CALL_REDUCE_SCATTER: return step_reduce_scatter(shm, k);
    case CT_CALL_BROADCAST: return step_broadcast(shm, k);
    case CT_CALL_ALL_GATHER: return step_all_gather(shm, k);
    default: return true; /* other kinds have no data here */
    }
}

/* The place of the data if input and output allow a call without staging. All members must find the
 * same place. */
static uint64_t find_place(const struct ct_host_shm *shm, const struct ct_call *call)
{
    bool gives = call->kind == CT_CALL_ALL_REDUCE ||
                 (call->kind == CT_CALL_BROADCAST && call->peer == shm->segment.me);

    if ((call->kind != CT_CALL_ALL_REDUCE && call->kind != CT_CALL_BROADCAST) ||
        (gives && call->in != call->out))
        return 0;
    return ct_regions_find(&shm->regions, call->out, call->bytes);
}

/* The post is complete before its number is stored, which publishes it. */
int ct_host_shm_begin(struct ct_host_shm *shm, const struct ct_call *call,
                      struct ctrun_error *err)
{
    size_t bytes = ct_call_in_bytes(call, shm->segment.size);
    struct ct_post *post;
    int rc = ct_verdict_get(shm->segment.verdict, err);

    if (rc < 0)
        return rc;
    shm->call = *call;
    shm->step = 0;
    shm->chunk_bytes = CT_CHUNK_BYTES;
    if (call->kind == CT_CALL_REDUCE_SCATTER)
        shm->chunk_bytes = CT_CHUNK_BYTES / (size_t)shm->segment.size / SLICE_ALIGN *
                           SLICE_ALIGN;
    shm->chunks = (call->bytes + shm->chunk_bytes - 1) / shm->chunk_bytes;
    post = ct_segment_get_post(&shm->segment, shm->segment.me, shm->number + 1);
    post->what = what_of(call);
    post->count = call->count;
    post->where = find_place(shm, call);
    if (bytes && bytes <= CT_POST_BYTES &&
        call->in) /* in a broadcast only the root has data */
        memcpy(post->data, call->in, bytes);
    next_post(shm);
    return 0;
}

/* After our part of a direct all-reduce: waits for the pieces, not for another barrier. */
static bool awaits_pieces(const struct ct_host_shm *shm)
{
    return shm->plan == PLAN_DIRECT && shm->call.kind == CT_CALL_ALL_REDUCE &&
           shm->step == 1;
}

/* What the call waits for now. */
static struct ct_wait find_wait(const struct ct_host_shm *shm)
{
    return awaits_pieces(shm) ? pieces_wait(shm)
                              : ct_segment_posts_wait(shm->number, &shm->call);
}

static int wait_for_others(struct ct_host_shm *shm, const struct ct_wait *wait,
                           struct ctrun_error *err)
{
    if (awaits_pieces(shm))
        reduce_unclaimed(shm, shm->segment.size);
    return ct_segment_wait(&shm->segment, wait, err);
}

static bool has_unfinished(const struct ct_segment *segment, const struct ct_wait *wait,
                           int member)
{
    return atomic_load(&segment->members[member].finished) < wait->number;
}

/* A call that is only tried leaves the pieces of the others to them: so it needs each of them. */
static int look_for_others(struct ct_host_shm *shm, struct ct_wait wait,
                           struct ctrun_error *err)
{
    if (awaits_pieces(shm))
        wait.is_awaited = has_unfinished;
    return ct_segment_look(&shm->segment, &wait, err);
}

int ct_host_shm_advance(struct ct_host_shm *shm, bool wait, struct ctrun_error *err)
{
    int rc;

    for (;;) {
        const struct ct_wait next = find_wait(shm);

        if (!next.is_met(&shm->segment, &next)) {
            if (!wait)
                return look_for_others(shm, next, err);
            if ((rc = wait_for_others(shm, &next, err)) < 0)
                return rc;
        }
        if (shm->step == 0 && (rc = check_agreement(shm, err)) < 0)
            return rc;
        if (take_step(shm))
            return 1;
        if (!awaits_pieces(shm))
            next_post(shm);
    }
}

int ct_host_shm_run(struct ct_host_shm *shm, const struct ct_call *call,
                    struct ctrun_error *err)
{
    int rc = ct_host_shm_begin(shm, call, err);

    if (rc < 0)
        return rc;
    rc = ct_host_shm_advance(shm, true, err);
    return rc < 0 ? rc : 0;
}

/* ---- Memory ----------------------------------------------------------------------------- */

/* Tells `number` to all members, and takes theirs. */
static int share(struct ct_host_shm *shm, size_t bytes, int number,
                 int numbers[CT_LOCAL_MAX], uint64_t deadline_ms,
                 struct ctrun_error *err)
{
    const struct ct_call call = {.kind = CT_CALL_ALLOC,
                                 .in = &number,
                                 .out = numbers,
                                 .count = bytes,
                                 .bytes = sizeof number,
                                 .dtype = CTRUN_U8,
                                 .divisor = 1,
                                 .deadline_ms = deadline_ms};

    return ct_host_shm_run(shm, &call, err);
}

/* Maps the memory that the lowest member offers: its descriptor there. 0 or a negative code. */
static int take_offer(struct ct_host_shm *shm, int offer, size_t stride, int own_fd)
{
    int fd = own_fd;
    int rc;

    if (offer < 0)
        return offer;
    if (own_fd < 0)
        fd = ct_segment_open_peer_fd(shm->segment.peers[0], offer,
                                     stride * (size_t)shm->segment.size, NULL);
    if (fd < 0)
        return fd;
    rc = ct_regions_map(&shm->regions, fd, stride);
    if (own_fd < 0)
        close(fd);
    return rc;
}

/* A collective: all members call it with equal sizes. The map stays until it is freed, or until
 * destroy(). */
int ct_host_shm_alloc(struct ct_host_shm *shm, size_t bytes, uint64_t deadline_ms,
                      void **out, struct ctrun_error *err)
{
    const size_t page = 4096;
    size_t stride = (bytes + page - 1) / page * page;
    int numbers
        [CT_LOCAL_MAX]; /* the members' descriptors, of which the first counts, then their codes */
    int own_status;
    int status;
    int own_fd = -1;
    char who[CT_PEER_TEXT_MAX];
    int rc;

    if (shm->regions.count == CT_REGIONS_MAX)
        return ct_fail(err, -EINVAL,
                       "group alloc: the group has %zu blocks, and more are not "
                       "possible: free one first",
                       shm->regions.count);
    if (shm->segment.me == 0)
        own_fd = ct_segment_new_memory(stride * (size_t)shm->segment.size);
    rc = share(shm, bytes, own_fd, numbers, deadline_ms, err);
    own_status = status = rc < 0 ? rc : take_offer(shm, numbers[0], stride, own_fd);
    /* Either all members get the memory or none; the lowest keeps its descriptor until all have
     * opened it. */
    if (rc == 0)
        rc = share(shm, bytes, own_status, numbers, deadline_ms, err);
    for (int i = 0; rc == 0 && i < shm->segment.size; i++)
        status = numbers[i] < status ? numbers[i] : status;
    if (own_fd >= 0)
        close(own_fd);
    if (rc == 0 && status == CTRUN_E_PEER_LOST) {
        ct_peer_format(who, shm->segment.peers[0]);
        rc = ct_fail(err, CTRUN_E_PEER_LOST,
                     "group alloc: %s has left the group or ended", who);
    } else if (rc == 0 && status < 0)
        rc = ct_fail(err, CTRUN_E_SHM, "group alloc: %d times %zu bytes: %s",
                     shm->segment.size, bytes, ctrun_strerror(status));
    if (rc < 0 && own_status == 0)
        ct_regions_unmap_last(&shm->regions);
    if (rc == 0)
        *out = ct_regions_last(&shm->regions);
    return rc;
}

int ct_host_shm_free(struct ct_host_shm *shm, const void *data)
{
    return ct_regions_unmap(&shm->regions, data);
}
