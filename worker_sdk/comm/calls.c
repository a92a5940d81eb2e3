/* SPDX-License-Identifier: Apache-2.0 */
/* The public collectives, as calls of a back end; collectives with unequal parts, as messages. */
#include "worker_sdk/comm/calls.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/comm/comm.h"

static struct ct_call call_of(enum ct_call_kind kind, const void *in, void *out,
                              size_t count, enum ctrun_dtype dtype)
{
    return (struct ct_call){
        .kind = kind, .in = in, .out = out, .count = count, .dtype = dtype};
}

int ctrun_all_reduce(struct ctrun_group *group, const void *in, void *out, size_t count,
                     enum ctrun_dtype dtype, enum ctrun_op op,
                     const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_ALL_REDUCE, in, out, count, dtype);

    call.op = op;
    return ct_group_call(group, &call, options, err);
}

int ctrun_reduce(struct ctrun_group *group, const void *in, void *out, size_t count,
                 enum ctrun_dtype dtype, enum ctrun_op op, int root,
                 const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_REDUCE, in, out, count, dtype);

    call.op = op;
    call.peer = root;
    return ct_group_call(group, &call, options, err);
}

int ctrun_reduce_scatter(struct ctrun_group *group, const void *in, void *out,
                         size_t count, enum ctrun_dtype dtype, enum ctrun_op op,
                         const struct ctrun_call_options *options,
                         struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_REDUCE_SCATTER, in, out, count, dtype);

    call.op = op;
    return ct_group_call(group, &call, options, err);
}

int ctrun_broadcast(struct ctrun_group *group, const void *in, void *out, size_t count,
                    enum ctrun_dtype dtype, int root,
                    const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_BROADCAST, in, out, count, dtype);

    call.peer = root;
    return ct_group_call(group, &call, options, err);
}

int ctrun_all_gather(struct ctrun_group *group, const void *in, void *out, size_t count,
                     enum ctrun_dtype dtype, const struct ctrun_call_options *options,
                     struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_ALL_GATHER, in, out, count, dtype);

    return ct_group_call(group, &call, options, err);
}

int ctrun_barrier(struct ctrun_group *group, const struct ctrun_call_options *options,
                  struct ctrun_error *err)
{
    return ct_group_call(group, &(struct ct_call){.kind = CT_CALL_BARRIER}, options,
                         err);
}

int ctrun_send(struct ctrun_group *group, const void *data, size_t count,
               enum ctrun_dtype dtype, int to, const struct ctrun_call_options *options,
               struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_SEND, data, NULL, count, dtype);

    call.peer = to;
    return ct_group_call(group, &call, options, err);
}

int ctrun_recv(struct ctrun_group *group, void *data, size_t count,
               enum ctrun_dtype dtype, int from,
               const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ct_call call = call_of(CT_CALL_RECV, NULL, data, count, dtype);

    call.peer = from;
    return ct_group_call(group, &call, options, err);
}

/* For calls that read the group before ct_group_call() checks it. One that fails at once leaves no
 * work. */
static int check_group(const struct ctrun_group *group, enum ct_call_kind kind,
                       const struct ctrun_call_options *given, struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;

    if (given && ct_sized_read(&options, sizeof options, given, "", NULL) == 0 &&
        options.work)
        *options.work = NULL;
    return ct_group_check(group, ct_call_name(kind), err);
}

/* The messages of a batch start at the same time, so two members that send to each other need no
 * order. */
int ctrun_batch_end(struct ctrun_group *group, const struct ctrun_call_options *options,
                    struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_BATCH};
    int rc;

    if ((rc = check_group(group, call.kind, options, err)) < 0)
        return rc;
    if (!ct_group_take_batch(group, &call))
        return ct_fail(err, CTRUN_E_USAGE,
                       "batch: it has not begun: call ctrun_batch_begin() first");
    return ct_group_call(group, &call, options, err);
}

/* ---- Collectives that are made of messages ---------------------------------------------- */

/* What this rank sends to the members, or receives from them: a part for each, of `count` elements
 * or as `parts` says. */
struct side {
    const void *data; /* of a side that is sent */
    void *to;
    size_t count;
    struct ctrun_parts parts;
    bool is_one; /* the same part for everybody */
};

static size_t count_of(const struct side *side, int member)
{
    return side->parts.counts ? side->parts.counts[member] : side->count;
}

/* Elements before the part of `member`. Without `starts` this adds up all counts before it, for
 * each member: quadratic, but a group has a few thousand members at most. */
static size_t start_of(const struct side *side, int member)
{
    size_t start = 0;

    if (side->is_one)
        return 0;
    if (side->parts.starts)
        return side->parts.starts[member];
    if (!side->parts.counts)
        return side->count * (size_t)member;
    for (int i = 0; i < member; i++)
        start += side->parts.counts[i];
    return start;
}

/* Adds a message between us and `member`, unless it is empty. A NULL buffer stays NULL;
 * ct_group_call() then fails with the same error as for any collective, unless the part is
 * empty. */
static void add_message(struct ct_call *call, const struct side *side, int member,
                        bool is_send)
{
    size_t element = ctrun_dtype_size(call->dtype);
    size_t at = start_of(side, member) * element;
    struct ct_comm_message *message = &call->messages[call->message_count++];

    *message = (struct ct_comm_message){.peer = member,
                                        .is_send = is_send,
                                        .bytes = count_of(side, member) * element,
                                        .dtype = call->dtype};
    if (is_send && side->data)
        message->from = (const unsigned char *)side->data + at;
    if (!is_send && side->to)
        message->to = (unsigned char *)side->to + at;
}

/* give, get: one member, ALL (-1) or NOBODY (-2). */
enum {
    ALL = -1,
    NOBODY = -2
};

/* After check_group(). ct_group_call() takes ownership of the messages and frees them when the call
 * is over, perhaps after this returns. */
static int exchange(struct ctrun_group *group, struct ct_call *call,
                    const struct side *in, int give, const struct side *out, int get,
                    const struct ctrun_call_options *options, struct ctrun_error *err)
{
    int size = ctrun_group_size(group);
    int me = ctrun_group_rank(group);

    if (ctrun_dtype_size(call->dtype) == 0)
        return ct_group_call(group, call, options, err); /* it reports the bad type */
    call->messages = ct_zalloc_array(2 * (size_t)size, sizeof *call->messages);
    if (!call->messages)
        return ct_fail(err, -ENOMEM, "%s: out of memory", ct_call_name(call->kind));
    /* A message to oneself has both halves or none: a message without its other half would wait
     * forever. */
    if ((give == ALL || give == me) && (get == ALL || get == me)) {
        add_message(call, in, me, true);
        add_message(call, out, me, false);
    }
    for (int step = 1; step < size; step++) { /* not all start with the same member */
        int to = (me + step) % size;
        int from = (me - step + size) % size;
        if (give == ALL || give == to)
            add_message(call, in, to, true);
        if (get == ALL || get == from)
            add_message(call, out, from, false);
    }
    return ct_group_call(group, call, options, err);
}

int ctrun_all_to_all(struct ctrun_group *group, const void *in, void *out, size_t count,
                     enum ctrun_dtype dtype, const struct ctrun_call_options *options,
                     struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_ALL_TO_ALL, .count = count, .dtype = dtype};
    const struct side from = {.data = in, .count = count};
    const struct side to = {.to = out, .count = count};
    int rc = check_group(group, call.kind, options, err);
    size_t bytes;

    if (rc < 0)
        return rc;
    bytes = count * ctrun_dtype_size(dtype) * (size_t)ctrun_group_size(group);
    if (ct_overlap(in, bytes, out, bytes))
        return ct_fail(err, -EINVAL,
                       "all_to_all: in and out overlap: pass two buffers");
    return exchange(group, &call, &from, ALL, &to, ALL, options, err);
}

int ctrun_gather(struct ctrun_group *group, const void *in, void *out, size_t count,
                 enum ctrun_dtype dtype, int root,
                 const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ct_call call = {
        .kind = CT_CALL_GATHER, .count = count, .dtype = dtype, .peer = root};
    const struct side from = {.data = in, .count = count, .is_one = true};
    const struct side to = {.to = out, .count = count};
    int rc = check_group(group, call.kind, options, err);

    if (rc < 0)
        return rc;
    return exchange(group, &call, &from, root, &to,
                    ctrun_group_rank(group) == root ? ALL : NOBODY, options, err);
}

int ctrun_scatter(struct ctrun_group *group, const void *in, void *out, size_t count,
                  enum ctrun_dtype dtype, int root,
                  const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ct_call call = {
        .kind = CT_CALL_SCATTER, .count = count, .dtype = dtype, .peer = root};
    const struct side from = {.data = in, .count = count};
    const struct side to = {.to = out, .count = count, .is_one = true};
    int rc = check_group(group, call.kind, options, err);

    if (rc < 0)
        return rc;
    return exchange(group, &call, &from, ctrun_group_rank(group) == root ? ALL : NOBODY,
                    &to, root, options, err);
}

/* `counts` and `starts` belong to the caller: nothing reads them after ct_group_call() returns. */
static int take_parts(struct side *side, const struct ctrun_parts *parts, int size,
                      enum ct_call_kind kind, struct ctrun_error *err)
{
    const size_t most = SIZE_MAX / 16 /
                        (size_t)size; /* bytes of all fit into a size_t */
    const char *name = ct_call_name(kind);
    int rc;

    if (!parts)
        return ct_fail(err, -EINVAL, "%s: parts is NULL", name);
    rc = ct_sized_read(&side->parts, sizeof side->parts, parts, "CTRUN_PARTS_INIT",
                       err);
    if (rc < 0)
        return ct_wrap(err, "%s: parts", name), rc;
    if (!side->parts.counts)
        return ct_fail(err, -EINVAL, "%s: counts of parts is NULL", name);
    for (int i = 0; i < size; i++) {
        if (side->parts.counts[i] > most)
            return ct_fail(err, -EINVAL, "%s: %zu elements: too many", name,
                           side->parts.counts[i]);
        if (side->parts.starts && side->parts.counts[i] &&
            side->parts.starts[i] > SIZE_MAX / 16)
            return ct_fail(err, -EINVAL, "%s: starts[%d] is %zu: too large", name, i,
                           side->parts.starts[i]);
    }
    return 0;
}

int ctrun_all_gather_v(struct ctrun_group *group, const void *in, void *out,
                       const struct ctrun_parts *out_parts, enum ctrun_dtype dtype,
                       const struct ctrun_call_options *options,
                       struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_ALL_GATHER_V, .dtype = dtype};
    struct side from = {.data = in, .is_one = true};
    struct side to = {.to = out};
    int rc = check_group(group, call.kind, options, err);

    if (rc < 0 ||
        (rc = take_parts(&to, out_parts, ctrun_group_size(group), call.kind, err)) < 0)
        return rc;
    from.count = count_of(&to, ctrun_group_rank(group));
    call.parts = ct_hash(to.parts.counts,
                         (size_t)ctrun_group_size(group) * sizeof *to.parts.counts);
    return exchange(group, &call, &from, ALL, &to, ALL, options, err);
}

/* A count times a number of its pair of members: what one end adds the other end takes away. */
static uint64_t weigh(int from, int to, size_t count)
{
    return (ct_hash_mix((uint64_t)from << 32 | (uint64_t)to) | 1) * count;
}

int ctrun_all_to_all_v(struct ctrun_group *group, const void *in,
                       const struct ctrun_parts *in_parts, void *out,
                       const struct ctrun_parts *out_parts, enum ctrun_dtype dtype,
                       const struct ctrun_call_options *options,
                       struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_ALL_TO_ALL_V, .dtype = dtype};
    struct side from = {.data = in};
    struct side to = {.to = out};
    int rc = check_group(group, call.kind, options, err);
    int me;

    if (rc < 0)
        return rc;
    me = ctrun_group_rank(group);
    if ((rc = take_parts(&from, in_parts, ctrun_group_size(group), call.kind, err)) <
            0 ||
        (rc = take_parts(&to, out_parts, ctrun_group_size(group), call.kind, err)) < 0)
        return rc;
    if (count_of(&from, me) != count_of(&to, me))
        return ct_fail(err, -EINVAL,
                       "all_to_all_v: this rank sends %zu elements to itself and "
                       "receives %zu from itself: both must be equal",
                       count_of(&from, me), count_of(&to, me));
    for (int i = 0; i < ctrun_group_size(group); i++)
        call.parts += weigh(me, i, from.parts.counts[i]) -
                      weigh(i, me, to.parts.counts[i]);
    return exchange(group, &call, &from, ALL, &to, ALL, options, err);
}
