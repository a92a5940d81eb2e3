/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/shares.h"

#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"

void ct_shares_deinit(struct ct_shares *shares)
{
    free(shares->pieces);
    free(shares->first);
    free(shares->starts);
    free(shares->counts);
    *shares = (struct ct_shares){.ranks = 0};
}

/* The longest of those without an owner, the first of equals; count: there is none. */
static size_t find_longest(const size_t *lengths, const size_t *owners, size_t count,
                           size_t nobody)
{
    size_t best = count;

    for (size_t p = 0; p < count; p++)
        if (owners[p] == nobody && lengths[p] > 0 &&
            (best == count || lengths[p] > lengths[best]))
            best = p;
    return best;
}

static void share_whole(struct ct_shares *shares, const size_t *lengths, size_t count,
                        size_t *owners)
{
    size_t p, at = 0;

    for (p = 0; p < count; p++)
        owners[p] = shares->ranks;
    while ((p = find_longest(lengths, owners, count, shares->ranks)) < count) {
        size_t least = 0;

        for (size_t r = 1; r < shares->ranks; r++)
            if (shares->counts[r] < shares->counts[least])
                least = r;
        owners[p] = least;
        shares->counts[least] += lengths[p];
    }
    for (size_t r = 0; r < shares->ranks; r++) {
        shares->first[r] = at;
        for (p = 0; p < count; p++)
            if (owners[p] == r)
                shares->pieces[at++] = (struct ct_piece){p, 0, lengths[p]};
    }
    shares->first[shares->ranks] = at;
}

static void share_evenly(struct ct_shares *shares, const size_t *lengths)
{
    const size_t share = (shares->total + shares->ranks - 1) / shares->ranks;
    size_t at = 0, p = 0, offset = 0;

    for (size_t r = 0; r < shares->ranks; r++) {
        size_t begin = r * share < shares->total ? r * share : shares->total;
        size_t left = shares->total - begin < share ? shares->total - begin : share;

        shares->first[r] = at;
        shares->counts[r] = left;
        while (left > 0) {
            const size_t rest = lengths[p] - offset, length = rest < left ? rest : left;

            if (length > 0)
                shares->pieces[at++] = (struct ct_piece){p, offset, length};
            left -= length;
            offset = length == rest ? 0 : offset + length;
            p += length == rest;
        }
    }
    shares->first[shares->ranks] = at;
}

struct ct_piece ct_cut_piece(const struct ct_cut *cut, size_t length, size_t ranks,
                             size_t r)
{
    size_t from = r * cut->slice, to = from + cut->slice;

    from = from > cut->begin ? from - cut->begin : 0;
    to = to > cut->begin ? to - cut->begin : 0;
    to = to > length || r == ranks - 1 ? length : to;
    return from < to ? (struct ct_piece){.offset = from, .length = to - from}
                     : (struct ct_piece){.length = 0};
}

static void share_slices(struct ct_shares *shares, const size_t *lengths, size_t count,
                         const struct ct_cut *cuts)
{
    size_t at = 0;

    for (size_t r = 0; r < shares->ranks; r++) {
        shares->first[r] = at;
        for (size_t p = 0; p < count; p++) {
            struct ct_piece piece = ct_cut_piece(&cuts[p], lengths[p], shares->ranks,
                                                 r);

            piece.param = p;
            shares->counts[r] += piece.length;
            if (piece.length > 0)
                shares->pieces[at++] = piece;
        }
    }
    shares->first[shares->ranks] = at;
}

/* At most so many pieces. */
static size_t count_pieces(const size_t *lengths, size_t count, size_t ranks,
                           const struct ct_cut *cuts)
{
    size_t pieces = count + ranks;

    for (size_t p = 0; cuts && p < count; p++)
        pieces += cuts[p].slice ? lengths[p] / cuts[p].slice + 1 : 0;
    return pieces;
}

int ct_shares_init(struct ct_shares *shares, const size_t *lengths, size_t count,
                   size_t ranks, bool are_whole, const struct ct_cut *cuts)
{
    size_t *owners = ct_zalloc_array(count, sizeof *owners);

    *shares = (struct ct_shares){.ranks = ranks};
    shares->pieces = ct_zalloc_array(count_pieces(lengths, count, ranks, cuts),
                                     sizeof *shares->pieces);
    shares->first = ct_zalloc_array(ranks + 1, sizeof *shares->first);
    shares->starts = ct_zalloc_array(ranks, sizeof *shares->starts);
    shares->counts = ct_zalloc_array(ranks, sizeof *shares->counts);
    if (!owners || !shares->pieces || !shares->first || !shares->starts ||
        !shares->counts) {
        free(owners);
        ct_shares_deinit(shares);
        return -ENOMEM;
    }
    for (size_t p = 0; p < count; p++)
        shares->total += lengths[p];
    if (cuts)
        share_slices(shares, lengths, count, cuts);
    else if (are_whole)
        share_whole(shares, lengths, count, owners);
    else
        share_evenly(shares, lengths);
    for (size_t r = 1; r < ranks; r++)
        shares->starts[r] = shares->starts[r - 1] + shares->counts[r - 1];
    free(owners);
    return 0;
}
