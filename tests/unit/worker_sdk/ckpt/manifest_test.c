/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests that no save has written: their sums are right, their pieces are not. */
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/ckpt/manifest.h"

enum {
    PIECES_MAX = 4
};

/* The boxes of a tensor of 4 times 6 elements, as first row, first column, rows, columns. */
struct story {
    int64_t boxes[PIECES_MAX][4];
    size_t count;
};

static int decode(const struct story *story, struct ctrun_error *err)
{
    struct ct_manifest_shard shard = {.file = "shard-0", .bytes = 1};
    struct ct_piece pieces[PIECES_MAX];
    struct ct_manifest manifest = {
        .shards = &shard, .shard_count = 1, .pieces = pieces};
    struct ct_manifest read;
    size_t length;
    char *text;
    int rc;

    for (size_t i = 0; i < story->count; i++) {
        const int64_t *box = story->boxes[i];

        pieces[manifest.piece_count++] = (struct ct_piece){.name = "w",
                                                           .dtype = "F32",
                                                           .dims = 2,
                                                           .whole = {4, 6},
                                                           .start = {box[0], box[1]},
                                                           .size = {box[2], box[3]}};
    }
    assert_int_equal(ct_manifest_encode(&text, &length, &manifest, NULL, 0), 0);
    if ((rc = ct_manifest_decode(&read, text, length, err)) == 0)
        ct_manifest_deinit(&read);
    free(text);
    return rc;
}

TEST(pieces_that_cut_the_tensor_are_read)
{
    static const struct story good[] = {
        {{{0, 0, 4, 6}}, 1},
        {{{0, 0, 4, 2}, {0, 2, 4, 0}, {0, 2, 4, 4}}, 3},
        {{{0, 0, 1, 6}, {1, 0, 3, 5}, {1, 5, 3, 1}}, 3},
        {{{0, 0, 2, 3}, {0, 3, 2, 3}, {2, 0, 2, 3}, {2, 3, 2, 3}}, 4},
    };
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(decode(&good[i], &err), 0);
}

/* All of these but the first two have 24 elements together, as the tensor has. */
TEST(pieces_with_a_hole_or_an_overlap_are_refused)
{
    static const struct story bad[] = {
        {{{0, 0, 4, 5}}, 1},
        {{{0, 0, 4, 6}, {1, 1, 1, 1}}, 2},
        {{{0, 0, 2, 6}, {1, 0, 2, 6}}, 2},
        {{{0, 0, 4, 3}, {0, 2, 4, 3}}, 2},
        {{{0, 0, 2, 3}, {0, 3, 2, 3}, {2, 0, 2, 3}, {2, 2, 2, 3}}, 4},
        {{{0, 0, 2, 3}, {2, 3, 2, 3}, {0, 1, 2, 3}, {2, 2, 2, 3}}, 4},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ctrun_error err = {.text = ""};

        assert_int_equal(decode(&bad[i], &err), CTRUN_E_BAD_CHECKPOINT);
        assert_non_null(
            strstr(err.text, "w: its pieces overlap or leave elements out"));
    }
}
