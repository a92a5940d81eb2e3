/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/ckpt/safetensors.h"

enum {
    NAME_MAX_BYTES = 1 << 20,   /* of a header that has 32 MiB */
    PIECE_MIN_BYTES = 4 + 4 + 1 /* empty texts, no dimensions */
};

/* ---- The list of a rank ---- */

int ct_plan_encode(uint8_t **out, size_t *length, const struct ct_piece *pieces,
                   size_t count)
{
    const size_t boxes = 3 * CTRUN_MAX_DIMS * sizeof(int64_t);
    size_t room = 0;
    struct ct_writer writer;

    for (size_t i = 0; i < count; i++)
        room += PIECE_MIN_BYTES + strlen(pieces[i].name) + strlen(pieces[i].dtype) +
                boxes;
    if (!(*out = ct_zalloc(room)))
        return -ENOMEM;
    ct_writer_init(&writer, *out, room);
    for (size_t i = 0; i < count; i++) {
        ct_write_str(&writer, pieces[i].name);
        ct_write_str(&writer, pieces[i].dtype);
        ct_write_u8(&writer, (uint8_t)pieces[i].dims);
        for (int d = 0; d < pieces[i].dims; d++) {
            ct_write_i64(&writer, pieces[i].whole[d]);
            ct_write_i64(&writer, pieces[i].start[d]);
            ct_write_i64(&writer, pieces[i].size[d]);
        }
    }
    *length = writer.length;
    return 0;
}

/* Reads bytes of another rank: the type must be known, and the box must be inside its tensor, or
 * sizes computed from it later could overflow. */
static int read_piece(struct ct_piece *piece, struct ct_reader *in, const char **name,
                      size_t *length, struct ctrun_error *err)
{
    char dtype[16];

    *name = (const char *)ct_read_blob(in, NAME_MAX_BYTES, length);
    ct_read_str(in, dtype, sizeof dtype);
    *piece = (struct ct_piece){.dtype = ct_safetensors_dtype_of(dtype),
                               .dims = ct_read_u8(in)};
    if (in->bad || !piece->dtype || piece->dims > CTRUN_MAX_DIMS)
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "the list of tensors of a rank cannot be read");
    for (int d = 0; d < piece->dims; d++) {
        piece->whole[d] = ct_read_i64(in);
        piece->start[d] = ct_read_i64(in);
        piece->size[d] = ct_read_i64(in);
    }
    if (in->bad || !ct_piece_is_sound(piece))
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "the list of tensors of a rank cannot be read");
    return 0;
}

void ct_plan_init(struct ct_plan *plan, int size)
{
    *plan = (struct ct_plan){.size = size};
}

void ct_plan_deinit(struct ct_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        free(plan->entries[i].name);
    free(plan->entries);
    *plan = (struct ct_plan){.size = 0};
}

static int make_room(struct ct_plan *plan)
{
    const size_t room = plan->room ? 2 * plan->room : 64;
    void *more;

    if (plan->count < plan->room)
        return 0;
    if (!(more = ct_realloc_array(plan->entries, room, sizeof *plan->entries)))
        return -ENOMEM;
    plan->entries = more;
    plan->room = room;
    return 0;
}

int ct_plan_add(struct ct_plan *plan, int rank, const uint8_t *data, size_t length,
                struct ctrun_error *err)
{
    struct ct_reader in;
    const char *name;
    size_t name_bytes;
    int rc;

    ct_reader_init(&in, data, length);
    for (uint32_t index = 0; in.left > 0; index++) {
        struct ct_plan_entry entry = {.rank = rank, .index = index};

        if ((rc = read_piece(&entry.piece, &in, &name, &name_bytes, err)) < 0)
            return rc;
        if (make_room(plan) < 0 || !(entry.name = ct_strndup(name, name_bytes)))
            return ct_fail(err, -ENOMEM, "out of memory for the tensors of %d ranks",
                           plan->size);
        /* on the heap by itself: entries move when the array grows */
        entry.piece.name = entry.name;
        plan->entries[plan->count++] = entry;
    }
    return 0;
}

/* ---- Rank 0 ---- */

static int compare(const void *a, const void *b)
{
    const struct ct_plan_entry *x = a, *y = b;
    const int order = ct_piece_compare(&x->piece, &y->piece);

    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static int rank_of(const struct ct_plan_entry *entry)
{
    return entry->rank < 0 ? 0 : entry->rank;
}

/* Checks two neighbours with one name: type and shape must be the same on both ranks. */
static int check_pair(const struct ct_plan_entry *a, const struct ct_plan_entry *b,
                      struct ctrun_error *err)
{
    char shape[2][CT_SAFETENSORS_SHAPE_TEXT_MAX];

    if (strcmp(a->piece.dtype, b->piece.dtype) == 0 && a->piece.dims == b->piece.dims &&
        memcmp(a->piece.whole, b->piece.whole, sizeof a->piece.whole) == 0)
        return 0;
    ct_safetensors_format_shape(shape[0], a->piece.dtype, a->piece.dims,
                                a->piece.whole);
    ct_safetensors_format_shape(shape[1], b->piece.dtype, b->piece.dims,
                                b->piece.whole);
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "tensor '%.128s' is %s on rank %d, and %s on rank %d", a->name,
                   shape[0], rank_of(a), shape[1], rank_of(b));
}

/* Checks the boxes of one tensor, each given once: they do not overlap, and together they cover
 * the tensor. */
static int check_cover(const struct ct_plan_entry *first, size_t count,
                       struct ctrun_error *err)
{
    struct ct_piece all = first->piece;
    uint64_t elements = 0;

    for (size_t i = 0; i < count; i++) {
        const struct ct_piece *piece = &first[i].piece;

        elements += ct_piece_elements(piece);
        for (size_t j = i + 1; j < count; j++) {
            if (piece->dims > 0 &&
                first[j].piece.start[0] >= piece->start[0] + piece->size[0])
                break; /* they are sorted by that */
            if (ct_piece_overlaps(piece, &first[j].piece))
                return ct_fail(err, CTRUN_E_MISMATCH,
                               "tensor '%.128s': the pieces of ranks %d and %d overlap",
                               first->name, rank_of(&first[i]), rank_of(&first[j]));
        }
    }
    memcpy(all.size, all.whole, sizeof all.size);
    if (elements == ct_piece_elements(&all))
        return 0;
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "tensor '%.128s': all pieces together have %llu of its %llu "
                   "elements",
                   first->name, (unsigned long long)elements,
                   (unsigned long long)ct_piece_elements(&all));
}

/* The entries are sorted by name, so those of one tensor stand together. Pieces that differ in
 * type or shape are refused before their boxes are compared. */
static int check(const struct ct_plan *plan, struct ctrun_error *err)
{
    size_t first = 0;
    int rc;

    for (size_t i = 1; i <= plan->count; i++) {
        const struct ct_plan_entry *entry = &plan->entries[i];

        if (i < plan->count && strcmp(entry->name, entry[-1].name) == 0) {
            if ((rc = check_pair(&entry[-1], entry, err)) < 0)
                return rc;
            continue;
        }
        if ((rc = check_cover(&plan->entries[first], i - first, err)) < 0)
            return rc;
        first = i;
    }
    return 0;
}

/* Of the ranks that have the piece of entries [first, end), the one that has the least to write. */
static const struct ct_plan_entry *choose(const struct ct_plan *plan, size_t first,
                                          size_t end, const uint64_t *loads,
                                          uint32_t *owner)
{
    const struct ct_plan_entry *best = &plan->entries[first];

    *owner = (uint32_t)rank_of(best);
    /* An entry of CT_PLAN_EVERYBODY has no equals: that list is the only one, and has each name
     * once. So no rank below is negative. */
    for (int r = 1; best->rank == CT_PLAN_EVERYBODY && r < plan->size; r++)
        if (loads[r] < loads[*owner])
            *owner = (uint32_t)r;
    for (size_t i = first + 1; i < end; i++)
        if (loads[plan->entries[i].rank] < loads[*owner]) {
            best = &plan->entries[i];
            *owner = (uint32_t)best->rank;
        }
    return best;
}

/* Greedy, in the order of the sort: of the ranks that have the next piece, the one with the least so
 * far writes it. Equal entries are merged in place: `kept` never passes `first`. */
int ct_plan_make(struct ct_plan *plan, uint8_t *flags, size_t stride,
                 struct ctrun_error *err)
{
    uint64_t *loads = ct_zalloc_array((size_t)plan->size, sizeof *loads);
    size_t kept = 0, end;

    if (!loads)
        return ct_fail(err, -ENOMEM, "out of memory");
    if (plan->count)
        qsort(plan->entries, plan->count, sizeof *plan->entries, compare);
    for (size_t first = 0; first < plan->count; first = end) {
        struct ct_plan_entry best;
        uint32_t owner;

        for (end = first + 1; end < plan->count; end++)
            if (ct_piece_compare(&plan->entries[first].piece,
                                 &plan->entries[end].piece) != 0 ||
                check_pair(&plan->entries[first], &plan->entries[end], NULL) < 0)
                break;
        best = *choose(plan, first, end, loads, &owner);
        best.piece.owner = owner;
        loads[owner] += ct_piece_bytes(&best.piece);
        flags[owner * stride + best.index] = 1;
        for (size_t i = first; i < end; i++)
            if (plan->entries[i].name != best.name)
                free(plan->entries[i].name);
        plan->entries[kept++] = best;
    }
    plan->count = kept;
    free(loads);
    return check(plan, err);
}
