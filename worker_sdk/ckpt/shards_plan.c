/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/folder.h"
#include "worker_sdk/ckpt/shards.h"

/* The lists of the ranks, during the planning. */
struct exchange {
    uint8_t *list; /* of this rank */
    size_t length;
    size_t stride;          /* the most pieces that a rank has */
    size_t room;            /* the longest list */
    bool is_alike;          /* all lists are equal */
    uint8_t *lists, *flags; /* of rank 0, of all ranks */
    uint8_t *mine;          /* flags of this rank */
};

int ct_shards_agree(struct ctrun_shards *shards, int rc, const uint64_t *values,
                    struct ctrun_error *err)
{
    struct ct_shards_word *mine = &shards->words[shards->rank];
    int met;

    memset(mine, 0, sizeof *mine);
    mine->code = rc;
    if (values)
        memcpy(mine->values, values, sizeof mine->values);
    if (!shards->group)
        return rc;
    if (rc < 0)
        (void)ct_copy(mine->text, sizeof mine->text,
                      err ? err->text : ctrun_strerror(rc));
    met = ctrun_all_gather(shards->group, mine, shards->words, sizeof *mine, CTRUN_U8,
                           NULL, err);
    if (met < 0)
        return met;
    for (int r = 0; r < shards->size; r++)
        if (shards->words[r].code < 0)
            return ct_fail(err, (int)shards->words[r].code, "rank %d: %.*s", r,
                           CTRUN_ERROR_TEXT_MAX / 2, shards->words[r].text);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct ct_piece *)a)->name,
                  ((const struct ct_piece *)b)->name);
}

/* Checks what this rank gave, and makes its list. */
static int make_list(struct exchange *all, const struct ctrun_tensor *tensors,
                     size_t count, struct ctrun_error *err)
{
    struct ct_piece *pieces = ct_zalloc_array(count, sizeof *pieces);
    int rc = pieces ? 0 : ct_fail(err, -ENOMEM, "out of memory");

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ct_piece_of_tensor(&pieces[i], &tensors[i], err);
    if (rc == 0 && ct_plan_encode(&all->list, &all->length, pieces, count) < 0)
        rc = ct_fail(err, -ENOMEM, "out of memory");
    if (rc == 0)
        qsort(pieces, count, sizeof *pieces, compare_names);
    for (size_t i = 1; i < count && rc == 0; i++)
        if (compare_names(&pieces[i - 1], &pieces[i]) == 0)
            rc = ct_fail(err, -EINVAL, "two tensors are called '%s'", pieces[i].name);
    free(pieces);
    return rc;
}

/* The lists of all ranks go to rank 0, unless they are equal. */
static int gather_lists(struct ctrun_shards *shards, struct exchange *all,
                        struct ctrun_error *err)
{
    const struct ct_shards_word *words = shards->words;
    const bool is_root = shards->rank == 0;
    uint8_t *padded = NULL;
    int rc = 0;

    all->is_alike = true;
    for (int r = 0; r < shards->size; r++) {
        shards->lengths[r] = words[r].values[0]; /* the words are used again */
        if (words[r].values[0] > all->room)
            all->room = words[r].values[0];
        if (words[r].values[1] > all->stride)
            all->stride = words[r].values[1];
        all->is_alike &= words[r].values[0] == words[0].values[0] &&
                         words[r].values[2] == words[0].values[2];
    }
    all->mine = ct_zalloc(all->stride);
    if (is_root)
        all->flags = ct_zalloc_array((size_t)shards->size, all->stride);
    if (!all->is_alike) {
        padded = ct_zalloc(all->room);
        if (is_root)
            all->lists = ct_zalloc_array((size_t)shards->size, all->room);
    }
    if (!all->mine || (is_root && !all->flags) ||
        (!all->is_alike && (!padded || (is_root && !all->lists))))
        rc = ct_fail(err, -ENOMEM, "out of memory");
    if (!all->is_alike && (rc = ct_shards_agree(shards, rc, NULL, err)) == 0) {
        memcpy(padded, all->list, all->length);
        rc = ctrun_gather(shards->group, padded, all->lists, all->room, CTRUN_U8, 0,
                          NULL, err);
    }
    free(padded);
    return rc;
}

/* Rank 0: who writes what. */
static int plan(struct ctrun_shards *shards, struct exchange *all,
                struct ctrun_error *err)
{
    struct ct_plan *made = &shards->save.plan;
    uint64_t newest = 0;
    int rc = ct_folder_newest(shards->directory, &newest, err);

    if (all->stride == 0)
        return ct_fail(err, -EINVAL, "no rank has a tensor");
    if (rc == 0 && newest > shards->save.step)
        return ct_fail(err, -EEXIST,
                       "step %llu is there already, and would be loaded instead as the "
                       "newest one: move it away",
                       (unsigned long long)newest);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    rc = all->is_alike ? ct_plan_add(made, shards->group ? CT_PLAN_EVERYBODY : 0,
                                     all->list, all->length, err)
                       : 0;
    for (int r = 0; r < shards->size && rc == 0 && !all->is_alike; r++)
        rc = ct_plan_add(made, r, all->lists + (size_t)r * all->room,
                         (size_t)shards->lengths[r], err);
    return rc < 0 ? rc : ct_plan_make(made, all->flags, all->stride, err);
}

/* Rank 0 plans, and every rank gets its flags and the tag. */
static int plan_and_scatter(struct ctrun_shards *shards, struct exchange *all,
                            struct ctrun_error *err)
{
    const uint64_t values[CT_SHARDS_VALUES] = {ct_wall_ns() ^ (uint64_t)getpid() << 40};
    int rc = gather_lists(shards, all, err);

    if (rc == 0 && shards->rank == 0)
        rc = plan(shards, all, err);
    if ((rc = ct_shards_agree(shards, rc, values, err)) < 0)
        return rc;
    (void)ct_format(shards->save.tag, sizeof shards->save.tag, "%08x",
                    (unsigned)ct_hash(shards->words[0].values, sizeof *values));
    if (shards->group)
        return ctrun_scatter(shards->group, all->flags, all->mine, all->stride,
                             CTRUN_U8, 0, NULL, err);
    memcpy(all->mine, all->flags, all->stride);
    return 0;
}

/* All ranks have the same words, and so all of them find the same. */
static int check_steps(const struct ctrun_shards *shards, struct ctrun_error *err)
{
    const struct ct_shards_word *words = shards->words;

    for (int r = 1; r < shards->size; r++)
        if (words[r].values[3] != words[0].values[3])
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "rank 0 saves step %llu, rank %d %llu",
                           (unsigned long long)words[0].values[3], r,
                           (unsigned long long)words[r].values[3]);
    return 0;
}

int ct_shards_plan(struct ctrun_shards *shards, uint8_t **flags, int rc,
                   const struct ctrun_tensor *tensors, size_t count,
                   struct ctrun_error *err)
{
    struct exchange all = {.list = NULL};
    uint64_t values[CT_SHARDS_VALUES];

    ct_plan_init(&shards->save.plan, shards->size);
    if (rc == 0)
        rc = make_list(&all, tensors, count, err);
    values[0] = all.length;
    values[1] = count;
    values[2] = all.list ? ct_hash(all.list, all.length) : 0;
    values[3] = shards->save.step;
    if ((rc = ct_shards_agree(shards, rc, values, err)) == 0 &&
        (rc = check_steps(shards, err)) == 0)
        rc = plan_and_scatter(shards, &all, err);
    *flags = all.mine;
    free(all.list);
    free(all.lists);
    free(all.flags);
    return rc;
}
