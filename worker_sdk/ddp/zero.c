/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO-1: sends what each rank has updated to all, and gathers the optimizer's state for a
 * checkpoint. Both are sent in the order of ranks, each rank's pieces one after the other. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/params.h"
#include "worker_sdk/ddp/reducer.h"
#include "worker_sdk/ddp/slice.h"

struct ctrun_zero {
    struct ctrun_group *group;  /* kept */
    struct ctrun_param *params; /* owned copy of the list */
    size_t count;
    enum ctrun_dtype dtype; /* of all that have a gradient */
    size_t rank;
    struct ct_shares shares;
    size_t *begins; /* owned; by parameter: where it is when all stand in their order */
    uint8_t *flat;  /* all values, rank by rank */
    uint8_t *
        own_flat; /* owned, the group's on a device; NULL: the parameters themselves stand so */
};

/* ---- Making ------------------------------------------------------------------------------ */

static int check_params(struct ctrun_zero *zero, struct ctrun_error *err)
{
    const struct ctrun_param *first = NULL;
    int rc;

    for (size_t p = 0; p < zero->count; p++) {
        const struct ctrun_param *param = &zero->params[p];

        if ((rc = ct_ddp_param_check(param, p, err)) < 0)
            return ct_wrap(err, "zero"), rc;
        if (param->no_grad)
            continue;
        first = first ? first : param;
        if (param->dtype != first->dtype)
            return ct_fail(err, CTRUN_E_UNSUPPORTED,
                           "zero: params[%zu] '%s' is of type %s, but '%s' of type %s: "
                           "all that get a gradient must be of one type",
                           p, param->name, ct_dtype_name((int)param->dtype),
                           first->name, ct_dtype_name((int)first->dtype));
    }
    if (!first)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "zero: no parameter gets a gradient: no_grad is set in all of them");
    zero->dtype = first->dtype;
    return 0;
}

/* Whether each parameter begins where the one before ends. Then each rank's part of the parameters
 * is contiguous in memory, and share() needs no copies. */
static bool are_one_array(const struct ctrun_zero *zero, const size_t *lengths)
{
    const uint8_t *end = zero->params[0].data;

    for (size_t p = 0; p < zero->count; p++) {
        if (zero->params[p].no_grad || zero->params[p].data != end)
            return false;
        end += lengths[p] * ctrun_dtype_size(zero->dtype);
    }
    return true;
}

static bool is_device(const struct ctrun_zero *zero)
{
    return ct_group_is_device(zero->group);
}

static int make_flat(struct ctrun_zero *zero, size_t bytes, struct ctrun_error *err)
{
    void *flat = NULL;
    int rc = 0;

    if (is_device(zero))
        rc = ctrun_group_alloc(zero->group, bytes, &flat, err);
    else if (!(flat = ct_zalloc(bytes)))
        rc = ct_fail(err, -ENOMEM, "zero: out of memory");
    zero->flat = zero->own_flat = flat;
    return rc;
}

/* Where DDP's buckets have the parameters' gradients, and how they are cut. */
static struct ct_cut *list_cuts(const struct ctrun_ddp *ddp)
{
    struct ct_cut *cuts = ct_zalloc_array(ddp->param_count, sizeof *cuts);

    for (size_t p = 0; cuts && p < ddp->param_count; p++)
        if (ddp->slot_of[p] != CT_NO_SLOT)
            cuts[p] = ct_slice_cut(&ddp->layout, ddp->slot_of[p]);
    return cuts;
}

static int build(struct ctrun_zero *zero, const struct ctrun_zero_options *options,
                 struct ctrun_error *err)
{
    const size_t element = ctrun_dtype_size(zero->dtype);
    size_t *lengths = ct_zalloc_array(zero->count, sizeof *lengths);
    struct ct_cut *cuts = options->ddp ? list_cuts(options->ddp) : NULL;
    size_t at = 0;
    int rc = 0;

    if (!lengths || (options->ddp && !cuts) ||
        !(zero->begins = ct_zalloc_array(zero->count, sizeof *lengths)))
        goto fail;
    for (size_t p = 0; p < zero->count; at += lengths[p++]) {
        lengths[p] = zero->params[p].no_grad
                         ? 0
                         : ct_ddp_param_bytes(&zero->params[p]) / element;
        zero->begins[p] = at;
    }
    if (ct_shares_init(&zero->shares, lengths, zero->count,
                       (size_t)ctrun_group_size(zero->group), options->whole_params,
                       cuts) < 0)
        goto fail;
    if (!options->whole_params && !cuts && are_one_array(zero, lengths))
        zero->flat = zero->params[0].data;
    else
        rc = make_flat(zero, at ? at * element : 1, err);
    free(cuts);
    free(lengths);
    return rc;
fail:
    free(cuts);
    free(lengths);
    return ct_fail(err, -ENOMEM, "zero: out of memory");
}

/* Refuses a DDP object whose slices are not those of these parameters. */
static int check_ddp(const struct ctrun_zero *zero,
                     const struct ctrun_zero_options *options, struct ctrun_error *err)
{
    const struct ctrun_ddp *ddp = options->ddp;
    bool is_alike = ddp->group == zero->group && ddp->param_count == zero->count;

    if (options->whole_params)
        return ct_fail(err, CTRUN_E_USAGE,
                       "zero: of whole_params and ddp only one can be set");
    if (!ddp->layout.ranks)
        return ct_fail(err, CTRUN_E_USAGE,
                       "zero: options.ddp was created without shard_gradients, so it "
                       "has no slices: set that, or leave options.ddp NULL");
    for (size_t p = 0; is_alike && p < zero->count; p++) {
        const struct ctrun_param *own = &zero->params[p], *its = &ddp->params[p];

        is_alike = own->data == its->data && own->no_grad == its->no_grad &&
                   own->dtype == its->dtype &&
                   ct_ddp_param_bytes(own) == ct_ddp_param_bytes(its);
    }
    return is_alike ? 0
                    : ct_fail(err, -EINVAL,
                              "zero: options.ddp has another group or other "
                              "parameters: pass those that it was created with");
}

/* Copies the caller's structs into structs of our own size. */
static int take_arguments(struct ctrun_zero *zero, struct ctrun_zero_options *own,
                          const struct ctrun_param *params, size_t count,
                          const struct ctrun_zero_options *options,
                          struct ctrun_error *err)
{
    static const struct ctrun_param defaults = CTRUN_PARAM_INIT;
    void *list;
    int rc;

    if (options && (rc = ct_sized_read(own, sizeof *own, options,
                                       "CTRUN_ZERO_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "zero: options"), rc;
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, params, count,
                                  "CTRUN_PARAM_INIT", err)) < 0)
        return ct_wrap(err, "zero: params"), rc;
    zero->params = list;
    zero->count = count;
    rc = check_params(zero, err);
    return rc < 0 || !own->ddp ? rc : check_ddp(zero, own, err);
}

int ctrun_zero_create(struct ctrun_zero **out, struct ctrun_group *group,
                      const struct ctrun_param *params, size_t count,
                      const struct ctrun_zero_options *options, struct ctrun_error *err)
{
    struct ctrun_zero_options own = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_zero *zero;
    int own_rc, rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_group_check(group, "zero", err)) < 0)
        return rc;
    if (!(zero = ct_zalloc(sizeof *zero)))
        return ct_fail(err, -ENOMEM, "zero: out of memory");
    zero->group = group;
    zero->rank = (size_t)ctrun_group_rank(group);
    own_rc = take_arguments(zero, &own, params, count, options, err);
    rc = ct_ddp_verify(group,
                       &(struct ct_ddp_model){
                           .params = zero->params, .count = zero->count, .zero = &own},
                       own_rc, err);
    if (rc < 0 || (rc = build(zero, &own, err)) < 0) {
        ctrun_zero_destroy(zero);
        return rc;
    }
    *out = zero;
    return 0;
}

void ctrun_zero_destroy(struct ctrun_zero *zero)
{
    if (!zero)
        return;
    ct_shares_deinit(&zero->shares);
    free(zero->params);
    free(zero->begins);
    if (zero->own_flat && is_device(zero))
        (void)ctrun_group_free(zero->group, zero->own_flat, NULL);
    else
        free(zero->own_flat);
    free(zero);
}

/* ---- Pieces ------------------------------------------------------------------------------ */

size_t ctrun_zero_length(const struct ctrun_zero *zero)
{
    return zero ? zero->shares.counts[zero->rank] : 0;
}

size_t ctrun_zero_total(const struct ctrun_zero *zero)
{
    return zero ? zero->shares.total : 0;
}

int ctrun_zero_piece(const struct ctrun_zero *zero, size_t i,
                     struct ctrun_zero_piece *out, struct ctrun_error *err)
{
    const struct ct_piece *pieces;
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    int rc;

    if (!zero)
        return ct_fail_null(err, "ZeRO object");
    pieces = zero->shares.pieces + zero->shares.first[zero->rank];
    if (i >= zero->shares.first[zero->rank + 1] - zero->shares.first[zero->rank])
        return 0;
    piece.param = pieces[i].param;
    piece.offset = pieces[i].offset;
    piece.length = pieces[i].length;
    for (size_t j = 0; j < i; j++)
        piece.state += pieces[j].length;
    rc = ct_sized_write(out, &piece, sizeof piece, "CTRUN_ZERO_PIECE_INIT", err);
    return rc < 0 ? rc : 1;
}

/* Copies rank r's pieces between `flat`, where they stand one behind the other, and where
 * find(context, piece) says; on a device behind `stream`, in the background unless `wait`. */
typedef uint8_t *find_fn(const struct ctrun_zero *zero, const struct ct_piece *piece,
                         uint8_t *context, size_t element);

struct copying {
    find_fn *find;
    uint8_t *context;
    size_t element;
    bool back; /* out of `flat` */
    bool wait; /* memory of the host may be in it */
    void *stream;
};

static uint8_t *find_value(const struct ctrun_zero *zero, const struct ct_piece *piece,
                           uint8_t *context, size_t element)
{
    (void)context;
    return (uint8_t *)zero->params[piece->param].data + piece->offset * element;
}

static uint8_t *find_in_order(const struct ctrun_zero *zero,
                              const struct ct_piece *piece, uint8_t *all,
                              size_t element)
{
    return all + (zero->begins[piece->param] + piece->offset) * element;
}

static int copy_pieces(const struct ctrun_zero *zero, size_t r, uint8_t *flat,
                       const struct copying *how, struct ctrun_error *err)
{
    const struct ct_shares *shares = &zero->shares;
    int rc = 0;

    for (size_t i = shares->first[r]; rc == 0 && i < shares->first[r + 1]; i++) {
        uint8_t *there = how->find(zero, &shares->pieces[i], how->context,
                                   how->element);
        const size_t bytes = shares->pieces[i].length * how->element;
        uint8_t *to = how->back ? there : flat, *from = how->back ? flat : there;

        if (is_device(zero) && !how->wait)
            rc = ct_group_copy_behind(zero->group, to, from, bytes, how->stream, err);
        else
            rc = ct_group_copy(zero->group, to, from, bytes, how->stream, err);
        flat += bytes;
    }
    return rc;
}

/* `mine` is this rank's part of `flat`: the gather leaves it where it is. A device does the gather
 * after the work of the caller's stream, which waits for the gather. */
static int gather(struct ctrun_zero *zero, uint8_t *mine,
                  struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ctrun_parts parts = CTRUN_PARTS_INIT;
    struct ctrun_work *work;
    int rc;

    parts.counts = zero->shares.counts;
    parts.starts = zero->shares.starts;
    if (is_device(zero))
        options->work = &work;
    rc = ctrun_all_gather_v(zero->group, mine, zero->flat, &parts, zero->dtype, options,
                            err);
    return rc < 0 || !is_device(zero) ? rc : ct_work_let_go(work, err);
}

int ctrun_zero_share(struct ctrun_zero *zero, const struct ctrun_call_options *options,
                     struct ctrun_error *err)
{
    struct ctrun_call_options own = CTRUN_CALL_OPTIONS_INIT;
    struct copying how = {.find = find_value};
    uint8_t *mine;
    int rc;

    if (!zero)
        return ct_fail_null(err, "ZeRO object");
    if (options && (rc = ct_sized_read(&own, sizeof own, options,
                                       "CTRUN_CALL_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "zero: share"), rc;
    if (own.work)
        return ct_fail(
            err, CTRUN_E_UNSUPPORTED,
            "zero: share cannot run in the background: options.work must be NULL");
    how.element = ctrun_dtype_size(zero->dtype);
    how.stream = own.stream ? own.stream : ct_group_stream(zero->group);
    mine = zero->flat + zero->shares.starts[zero->rank] * how.element;
    rc = zero->own_flat ? copy_pieces(zero, zero->rank, mine, &how, err) : 0;
    if (rc == 0)
        rc = gather(zero, mine, &own, err);
    how.back = true;
    for (size_t r = 0; rc == 0 && zero->own_flat && r < zero->shares.ranks; r++)
        if (r != zero->rank)
            rc = copy_pieces(zero, r, zero->flat + zero->shares.starts[r] * how.element,
                             &how, err);
    return rc < 0 ? rc : ct_group_hold_back(zero->group, how.stream, err);
}

/* ---- The optimizer's state --------------------------------------------------------------- */

/* Room for what the messages of a gather need: memory of the device, or of the host. */
static int make_room(struct ctrun_zero *zero, size_t bytes, void **out,
                     struct ctrun_error *err)
{
    *out = NULL;
    if (is_device(zero))
        return ctrun_group_alloc(zero->group, bytes ? bytes : 1, out, err);
    *out = ct_zalloc(bytes ? bytes : 1);
    return *out ? 0 : ct_fail(err, -ENOMEM, "zero: gather state: out of memory");
}

static void free_room(struct ctrun_zero *zero, void *room)
{
    if (is_device(zero))
        (void)ctrun_group_free(zero->group, room, NULL);
    else
        free(room);
}

/* All to all with one receiver is a gather of parts of unequal length: every rank sends to root alone, and all
 * but root receive nothing (the second half of `counts`, zeroes). */
static int send_state(struct ctrun_zero *zero, const void *mine, void *flat,
                      enum ctrun_dtype dtype, int root, struct ctrun_error *err)
{
    struct ctrun_parts in = CTRUN_PARTS_INIT, out = CTRUN_PARTS_INIT;
    size_t *counts = ct_zalloc_array(2 * zero->shares.ranks, sizeof *counts);
    int rc;

    if (!counts)
        return ct_fail(err, -ENOMEM, "zero: gather state: out of memory");
    counts[root] = zero->shares.counts[zero->rank];
    in.counts = counts;
    out.counts = (int)zero->rank == root ? zero->shares.counts
                                         : counts + zero->shares.ranks;
    rc = ctrun_all_to_all_v(zero->group, mine, &in, flat, &out, dtype, NULL, err);
    free(counts);
    return rc;
}

int ctrun_zero_gather_state(struct ctrun_zero *zero, const void *mine, void *all,
                            enum ctrun_dtype dtype, int root, struct ctrun_error *err)
{
    const struct ct_shares *shares;
    struct copying how = {.find = find_in_order,
                          .context = all,
                          .element = ctrun_dtype_size(dtype),
                          .back = true,
                          .wait = true};
    const size_t own_bytes = ctrun_zero_length(zero) * how.element;
    void *flat = NULL, *sent = NULL;
    bool is_root;
    int rc;

    if (!zero)
        return ct_fail_null(err, "ZeRO object");
    shares = &zero->shares;
    how.stream = ct_group_stream(zero->group);
    is_root = (int)zero->rank == root;
    if (how.element == 0)
        return ct_fail(err, -EINVAL, "zero: gather state: no such dtype: %d",
                       (int)dtype);
    if (root < 0 || (size_t)root >= shares->ranks)
        return ct_fail(err, -EINVAL,
                       "zero: gather state: root is %d, but must be a rank, 0 to %zu",
                       root, shares->ranks - 1);
    if ((!mine && own_bytes) || (is_root && !all && shares->total))
        return ct_fail(err, -EINVAL,
                       "zero: gather state: the pointer to the state is NULL");
    rc = is_root ? make_room(zero, shares->total * how.element, &flat, err) : 0;
    if (rc == 0 && is_device(zero) && /* `mine` may be memory of the host */
        (rc = make_room(zero, own_bytes, &sent, err)) == 0)
        rc = ct_group_copy(zero->group, sent, mine, own_bytes, how.stream, err);
    if (rc == 0)
        rc = send_state(zero, sent ? sent : mine, flat, dtype, root, err);
    for (size_t r = 0; rc == 0 && is_root && r < shares->ranks; r++)
        rc = copy_pieces(zero, r, (uint8_t *)flat + shares->starts[r] * how.element,
                         &how, err);
    free_room(zero, flat);
    free_room(zero, sent);
    return rc;
}

int ctrun_zero_pick_state(const struct ctrun_zero *zero, const void *all, void *mine,
                          enum ctrun_dtype dtype, struct ctrun_error *err)
{
    struct copying how = {.find = find_in_order,
                          .context = (uint8_t *)(uintptr_t)all, /* only read */
                          .element = ctrun_dtype_size(dtype),
                          .wait = true};

    if (!zero)
        return ct_fail_null(err, "ZeRO object");
    how.stream = ct_group_stream(zero->group);
    if (how.element == 0)
        return ct_fail(err, -EINVAL, "zero: pick state: no such dtype: %d", (int)dtype);
    if ((!all || !mine) && zero->shares.counts[zero->rank])
        return ct_fail(err, -EINVAL,
                       "zero: pick state: the pointer to the state is NULL");
    return copy_pieces(zero, zero->rank, mine, &how, err);
}
