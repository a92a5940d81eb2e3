/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/bucket.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

/* Tensors of one key that wait for their bucket to be full. */
struct heap {
    int key;
    uint64_t bytes;
    size_t limit;    /* index of the limit that is in force */
    size_t length;   /* tensors collected */
    size_t *members; /* owned; room for all tensors */
};

struct assignment {
    struct ct_bucket_plan *plan;
    struct heap *heaps;
    size_t heap_count;
    size_t placed; /* tensors in closed buckets */
};

static int plan_init(struct ct_bucket_plan *plan, size_t tensors)
{
    *plan = (struct ct_bucket_plan){.count = 0};
    plan->members = ct_zalloc_array(tensors, sizeof *plan->members);
    plan->starts = ct_zalloc_array(tensors + 1, sizeof *plan->starts);
    plan->limits = ct_zalloc_array(tensors, sizeof *plan->limits);
    if (plan->members && plan->starts && plan->limits)
        return 0;
    ct_bucket_plan_deinit(plan);
    return -ENOMEM;
}

void ct_bucket_plan_deinit(struct ct_bucket_plan *plan)
{
    free(plan->members);
    free(plan->starts);
    free(plan->limits);
    *plan = (struct ct_bucket_plan){.count = 0};
}

/* The heap of this key, a new one for the key's first tensor; NULL: out of memory. */
static struct heap *heap_of(struct assignment *to, int key, size_t tensors)
{
    struct heap *heap;

    for (size_t i = 0; i < to->heap_count; i++)
        if (to->heaps[i].key == key)
            return &to->heaps[i];
    heap = ct_realloc_array(to->heaps, to->heap_count + 1, sizeof *heap);
    if (!heap)
        return NULL;
    to->heaps = heap;
    heap += to->heap_count;
    *heap = (struct heap){.key = key,
                          .members = ct_zalloc_array(tensors, sizeof *heap->members)};
    if (!heap->members)
        return NULL;
    to->heap_count++;
    return heap;
}

static void close_bucket(struct assignment *to, const size_t *members, size_t length,
                         uint64_t limit)
{
    struct ct_bucket_plan *plan = to->plan;

    memcpy(plan->members + to->placed, members, length * sizeof *members);
    to->placed += length;
    plan->limits[plan->count++] = limit;
    plan->starts[plan->count] = to->placed;
}

/* Sorts by smallest member, which is the first, since the members of a bucket ascend. Quadratic in
 * the number of buckets, which is some dozens. `plan` and `from` are two plans of the same
 * tensors; no bucket is empty. */
static void sort_buckets(struct ct_bucket_plan *plan, const struct ct_bucket_plan *from)
{
    size_t placed = 0;

    for (size_t done = 0; done < from->count; done++) {
        size_t best = SIZE_MAX;

        for (size_t b = 0; b < from->count; b++) {
            size_t first = from->members[from->starts[b]];

            if ((done == 0 || first > plan->members[plan->starts[done - 1]]) &&
                (best == SIZE_MAX || first < from->members[from->starts[best]]))
                best = b;
        }
        for (size_t i = from->starts[best]; i < from->starts[best + 1]; i++)
            plan->members[placed++] = from->members[i];
        plan->limits[done] = from->limits[best];
        plan->starts[done + 1] = placed;
    }
    plan->count = from->count;
}

static int collect(struct assignment *to, const struct ct_bucket_tensor *tensors,
                   size_t count, const size_t *order, const uint64_t *limits,
                   size_t limit_count)
{
    for (size_t i = 0; i < count; i++) {
        size_t t = order ? order[i] : i;
        struct heap *heap;

        if (tensors[t].sparse) {
            close_bucket(to, &t, 1, 0);
            continue;
        }
        if (!(heap = heap_of(to, tensors[t].key, count)))
            return -ENOMEM;
        heap->members[heap->length++] = t;
        heap->bytes += tensors[t].bytes;
        if (heap->bytes < limits[heap->limit])
            continue;
        close_bucket(to, heap->members, heap->length, limits[heap->limit]);
        heap->length = 0;
        heap->bytes = 0;
        /* The first bucket of a key is small, so that the first reduction starts early; the last
         * limit holds for all that follow. */
        heap->limit += heap->limit + 1 < limit_count;
    }
    for (size_t i = 0; i < to->heap_count; i++)
        if (to->heaps[i].length > 0)
            close_bucket(to, to->heaps[i].members, to->heaps[i].length,
                         limits[to->heaps[i].limit]);
    return 0;
}

int ct_bucket_assign(struct ct_bucket_plan *out, const struct ct_bucket_tensor *tensors,
                     size_t count, const size_t *order, const uint64_t *limits,
                     size_t limit_count)
{
    struct ct_bucket_plan filled = {.count = 0};
    struct assignment to = {.plan = &filled};
    int rc = plan_init(&filled, count);

    *out = (struct ct_bucket_plan){.count = 0};
    if (rc == 0)
        rc = collect(&to, tensors, count, order, limits, limit_count);
    if (rc == 0 && order) {
        *out = filled;
        filled = (struct ct_bucket_plan){.count = 0};
    } else if (rc == 0 && (rc = plan_init(out, count)) == 0) {
        sort_buckets(out, &filled);
    }
    for (size_t i = 0; i < to.heap_count; i++)
        free(to.heaps[i].members);
    free(to.heaps);
    ct_bucket_plan_deinit(&filled);
    return rc;
}

int ct_bucket_plan_reverse(struct ct_bucket_plan *plan)
{
    size_t total = plan->starts[plan->count];
    struct ct_bucket_plan turned;
    size_t placed = 0;

    if (plan_init(&turned, total) < 0)
        return -ENOMEM;
    for (size_t b = plan->count; b-- > 0;) {
        size_t length = plan->starts[b + 1] - plan->starts[b];

        memcpy(turned.members + placed, plan->members + plan->starts[b],
               length * sizeof *turned.members);
        placed += length;
        turned.limits[turned.count++] = plan->limits[b];
        turned.starts[turned.count] = placed;
    }
    ct_bucket_plan_deinit(plan);
    *plan = turned;
    return 0;
}

/* The numbers come from rank 0 through the group. They are indices of our arrays: checks that each
 * index is valid and present once. */
static int import(struct ct_bucket_plan *out, const int32_t *members, size_t count,
                  const int32_t *sizes, size_t bucket_count)
{
    bool *seen = ct_zalloc_array(count, sizeof *seen);
    size_t placed = 0;
    int rc = seen ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (members[i] < 0 || (size_t)members[i] >= count || seen[members[i]]) {
            rc = -EBADMSG;
            break;
        }
        seen[members[i]] = true;
        out->members[i] = (size_t)members[i];
    }
    for (size_t b = 0; rc == 0 && b < bucket_count; b++) {
        if (sizes[b] < 1 || (size_t)sizes[b] > count - placed) {
            rc = -EBADMSG;
            break;
        }
        placed += (size_t)sizes[b];
        out->starts[++out->count] = placed;
    }
    free(seen);
    return rc == 0 && placed != count ? -EBADMSG : rc;
}

int ct_bucket_plan_import(struct ct_bucket_plan *out, const int32_t *members,
                          size_t count, const int32_t *sizes, size_t bucket_count)
{
    int rc;

    if (bucket_count > count)
        return -EBADMSG;
    if ((rc = plan_init(out, count)) < 0)
        return rc;
    if ((rc = import(out, members, count, sizes, bucket_count)) < 0)
        ct_bucket_plan_deinit(out);
    return rc;
}
