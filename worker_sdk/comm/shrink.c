/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that continue without lost ranks, and with new ranks that were started in their place. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/group_private.h"

uint32_t ct_group_epoch(const struct ctrun_group *group)
{
    return group->epoch;
}

uint64_t ct_group_timeout_ms(const struct ctrun_group *group)
{
    return group->timeout_ms;
}

const char *ct_group_root(const struct ctrun_group *group)
{
    return group->root;
}

/* Of the time when the group was opened: ranks that join later do not change it. */
bool ct_group_is_whole(const struct ctrun_group *group)
{
    return group->is_whole;
}

void ct_group_end(struct ctrun_group *group, int code, const char *text)
{
    group->backend->abort(group->self, code, text);
}

/* Lists the members of `old` that are left, ascending as both lists are; returns how many. */
static size_t list_left(int *left, const struct ctrun_group *old,
                        const struct ct_group_place *place)
{
    size_t count = 0;
    int at = 0;

    for (int i = 0; i < old->size; i++) {
        while (at < place->rank_count && place->ranks[at] < old->ranks[i])
            at++;
        if (at < place->rank_count && place->ranks[at] == old->ranks[i])
            left[count++] = old->ranks[i];
    }
    return count;
}

/* The key is the name of the group before any loss, with the epoch: so it is the same on a rank
 * that was in all groups in between and on a rank that missed some of them. */
static int open_next(struct ctrun_group **out, const struct ct_group_place *place,
                     const char *root, const struct ctrun_group_options *options,
                     struct ctrun_error *err)
{
    struct ct_group_place there = *place;
    char key[CT_GROUP_KEY_MAX];
    int rc;

    *out = NULL;
    if (ct_format(key, sizeof key, "%s~%u", root, place->epoch) < 0)
        return ct_fail(err, -ENAMETOOLONG,
                       "open group: too many splits of splits: the name of the group "
                       "exceeds %zu bytes",
                       sizeof key - 1);
    there.key = key;
    rc = ct_group_open(out, &there, options, err);
    if (rc == 0 && *out)
        (void)ct_copy((*out)->root, sizeof(*out)->root, root);
    return rc;
}

int ct_group_join(struct ctrun_group **out, const struct ct_group_place *place,
                  const char *root, const struct ctrun_group_options *options,
                  struct ctrun_error *err)
{
    struct ct_group_place there = *place;

    there.is_new = true;
    return open_next(out, &there, root, options, err);
}

/* `old` is only read, and the caller closes it; the new group's back end may take resources from
 * the old one's. */
int ct_group_shrink(struct ctrun_group **out, const struct ct_group_place *place,
                    const struct ctrun_group *old,
                    const struct ctrun_group_options *given, struct ctrun_error *err)
{
    struct ctrun_group_options options = ct_group_options(old);
    struct ct_group_place there = *place;
    int *left;
    int rc;

    if (given && (rc = ct_sized_read(&options, sizeof options, given,
                                     "CTRUN_GROUP_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "shrink: options"), rc;
    if (!(left = ct_zalloc_array((size_t)old->size, sizeof *left)))
        return ct_fail(err, -ENOMEM, "shrink: out of memory");
    there.is_new = old->lacks_state;
    there.old = old;
    options.ranks = place->takes_all ? NULL : left;
    options.rank_count = place->takes_all ? 0 : list_left(left, old, place);
    rc = open_next(out, &there, old->root, &options, err);
    free(left);
    return rc;
}

/* ---- Catching up ------------------------------------------------------------------------ */

/* What each member tells the others, as words on the wire. */
struct progress {
    int64_t steps;
    int64_t tensors;
    int64_t lacks_state; /* its steps do not count */
    int64_t hash;        /* of what the tensors are, without their data */
};
enum {
    PROGRESS_WORDS = sizeof(struct progress) / sizeof(int64_t)
};

/* Why the tensor cannot be sent; NULL: it can. Only whole tensors: the sender's bytes go to the
 * same places. */
static const char *find_fault(const struct ctrun_tensor *tensor)
{
    size_t bytes = ctrun_dtype_size(tensor->dtype);

    if (!tensor->name)
        return "it has no name";
    if (bytes == 0)
        return "its dtype is unknown";
    if (tensor->dims < 0 || tensor->dims > CTRUN_MAX_DIMS)
        return "dims is not 0 to 8";
    for (int d = 0; d < tensor->dims; d++) {
        if (tensor->whole[d] != 0)
            return "it is a piece of a tensor: pass whole tensors";
        if (tensor->sizes[d] < 0)
            return "one of its sizes is negative";
        if (__builtin_mul_overflow(bytes, tensor->sizes[d], &bytes))
            return "it is too large";
    }
    return bytes > 0 && !tensor->data ? "data is NULL" : NULL;
}

/* Checked on this rank alone, before anything is sent. */
static int check_state(const struct ctrun_tensor *state, size_t count,
                       struct ctrun_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *fault = find_fault(&state[i]);

        if (fault)
            return ct_fail(err, -EINVAL, "catch up: state[%zu] '%s': %s", i,
                           state[i].name ? state[i].name : "", fault);
    }
    return 0;
}

static size_t count_elements(const struct ctrun_tensor *tensor)
{
    size_t count = 1;

    for (int d = 0; d < tensor->dims; d++)
        count *= (size_t)tensor->sizes[d];
    return count;
}

/* Equal where all tensors have the same names, types and sizes, in the same order: else one would get
 * the data of another. */
static int64_t hash_state(const struct ctrun_tensor *state, size_t count)
{
    uint64_t hash = CT_HASH_START;

    for (size_t i = 0; i < count; i++) {
        const struct ctrun_tensor *tensor = &state[i];
        const int32_t words[] = {(int32_t)tensor->dtype, tensor->dims};

        hash = ct_hash_add(hash, tensor->name, strlen(tensor->name) + 1);
        hash = ct_hash_add(hash, words, sizeof words);
        hash = ct_hash_add(hash, tensor->sizes,
                           (size_t)tensor->dims * sizeof *tensor->sizes);
    }
    return (int64_t)hash;
}

static int compare_states(const struct ctrun_group *group, const struct progress *all,
                          struct ctrun_error *err)
{
    for (int i = 0; i < group->size; i++) {
        if (all[i].tensors != all[0].tensors)
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "catch up: rank %d gives %lld tensors, rank %d %lld",
                           group->ranks[0], (long long)all[0].tensors, group->ranks[i],
                           (long long)all[i].tensors);
        if (all[i].hash != all[0].hash)
            return ct_fail(
                err, CTRUN_E_MISMATCH,
                "catch up: the tensors of rank %d have other names, types or "
                "sizes than those of rank %d, or another order",
                group->ranks[i], group->ranks[0]);
    }
    return 0;
}

/* The lowest member of those that are furthest; -1: all are equally far. All ranks have the same
 * list, so they choose the same member without communication. */
static int find_furthest(const struct progress *all, int size)
{
    bool differs = all[0].lacks_state;
    int best = 0;

    for (int i = 1; i < size; i++) {
        differs = differs || all[i].steps != all[0].steps || all[i].lacks_state;
        if (all[i].lacks_state < all[best].lacks_state ||
            (all[i].lacks_state == all[best].lacks_state &&
             all[i].steps > all[best].steps))
            best = i;
    }
    return differs ? best : -1;
}

/* ---- Sending the state -------------------------------------------------------------------- */

enum {
    PIECE_BYTES = 8 << 20
};

/* A piece is added to the checksum while the next one is sent: a checksum over everything at the
 * end would take as long again on a fast network. */
struct giving {
    struct ctrun_group *group;
    int from;
    struct ctrun_work *work; /* in flight; NULL: none */
    const void *data;
    size_t bytes;
    uint32_t sum; /* checksum of what has arrived */
};

/* The checksum leaves out a piece that failed. */
static int await_piece(struct giving *giving, struct ctrun_error *err)
{
    const int rc = giving->work ? ctrun_work_wait(giving->work, err) : 0;

    if (giving->work && rc == 0)
        giving->sum = ct_crc32c(giving->sum, giving->data, giving->bytes);
    giving->work = NULL;
    return rc;
}

/* Starts the next piece before it waits for the previous one: at most two are in flight. */
static int give_piece(struct giving *giving, void *data, size_t count,
                      enum ctrun_dtype dtype, struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_work *work = NULL;
    int begun, rc;

    options.work = &work;
    begun = ctrun_broadcast(giving->group, data, data, count, dtype, giving->from,
                            &options, err);
    rc = await_piece(giving, err);
    giving->work = work;
    giving->data = data;
    giving->bytes = count * ctrun_dtype_size(dtype);
    return rc < 0 ? rc : begun;
}

static int give_tensor(struct giving *giving, const struct ctrun_tensor *tensor,
                       struct ctrun_error *err)
{
    const size_t bytes = ctrun_dtype_size(tensor->dtype);
    size_t left = count_elements(tensor);
    char *at = tensor->data;
    int rc = 0;

    while (rc == 0 && left > 0) {
        const size_t count = left < PIECE_BYTES / bytes ? left : PIECE_BYTES / bytes;

        rc = give_piece(giving, at, count, tensor->dtype, err);
        at += count * bytes;
        left -= count;
    }
    return rc < 0 ? (ct_wrap(err, "catch up: '%s'", tensor->name), rc) : 0;
}

/* Each rank computes the checksum over its own memory, the sender as well: so a wrong copy anywhere
 * in between is found. */
static int check_sums(struct giving *giving, struct ctrun_error *err)
{
    struct ctrun_group *group = giving->group;
    int64_t *sums = ct_zalloc_array((size_t)group->size, sizeof *sums);
    const int from = giving->from;
    int64_t sum;
    int rc;

    if (!sums)
        return ct_fail(err, -ENOMEM, "catch up: out of memory");
    sum = giving->sum;
    rc = ctrun_all_gather(group, &sum, sums, 1, CTRUN_I64, NULL, err);
    for (int i = 0; rc == 0 && i < group->size; i++)
        if (sums[i] != sums[from])
            rc = ct_fail(err, CTRUN_E_MISMATCH,
                         "catch up: the state that rank %d received differs from the "
                         "state of rank %d, which sent it (CRC-32C %08llx, not %08llx)",
                         group->ranks[i], group->ranks[from],
                         (unsigned long long)sums[i], (unsigned long long)sums[from]);
    free(sums);
    return rc;
}

static int catch_up(struct ctrun_group *group, uint64_t *steps,
                    const struct ctrun_tensor *state, size_t count,
                    struct progress *all, struct ctrun_error *err)
{
    const struct progress own = {(int64_t)*steps, (int64_t)count, group->lacks_state,
                                 hash_state(state, count)};
    struct giving giving;
    int from, last;
    int rc = ctrun_all_gather(group, &own, all, PROGRESS_WORDS, CTRUN_I64, NULL, err);

    if (rc == 0)
        rc = compare_states(group, all, err);
    if (rc < 0 || (from = find_furthest(all, group->size)) < 0)
        return rc;
    if (all[from].lacks_state)
        return ct_fail(err, CTRUN_E_CHANGED,
                       "catch up: no rank of this group has a whole state: start from "
                       "a checkpoint");
    /* A partly received state is worthless: if the sender dies now, this rank must not count as
     * complete. */
    group->lacks_state |= all[group->me].steps < all[from].steps;
    giving = (struct giving){.group = group, .from = from};
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = give_tensor(&giving, &state[i], err);
    last = await_piece(&giving,
                       rc < 0 ? NULL : err); /* even on failure: it uses our data */
    if (rc == 0 && (rc = last) == 0)
        rc = check_sums(&giving, err);
    if (rc == 0)
        *steps = (uint64_t)all[from].steps;
    return rc;
}

int ctrun_group_catch_up(struct ctrun_group *group, uint64_t *steps,
                         const struct ctrun_tensor *state, size_t count,
                         struct ctrun_error *err)
{
    const struct ctrun_tensor defaults = CTRUN_TENSOR_INIT;
    struct progress *all;
    void *list;
    int rc;

    if ((rc = ct_group_check(group, "catch up", err)) < 0)
        return rc;
    if (!steps)
        return ct_fail_null(err, "pointer to the steps");
    if (*steps > INT64_MAX)
        return ct_fail(err, -EINVAL, "catch up: steps is %llu: must be less than 2^63",
                       (unsigned long long)*steps);
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, state, count,
                                  "CTRUN_TENSOR_INIT", err)) < 0)
        return ct_wrap(err, "catch up: state"), rc;
    if (!(all = ct_zalloc_array((size_t)group->size, sizeof *all)))
        rc = ct_fail(err, -ENOMEM, "catch up: out of memory");
    if (rc == 0 && (rc = check_state(list, count, err)) == 0)
        rc = catch_up(group, steps, list, count, all, err);
    if (rc == 0)
        group->lacks_state = false;
    free(all);
    free(list);
    return rc;
}
