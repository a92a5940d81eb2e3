/* SPDX-License-Identifier: Apache-2.0 */
/* A sum along one tree over virtual ranks, on whatever ranks these are. Node i of level l holds
 * the sum of 2^l virtual ranks (or as many as there are) from i * 2^l on: the sum of its left
 * child and, where it has one, its right child. Each rank makes the nodes whose virtual ranks are
 * all its own. Where these are not the whole tree, every rank gets one slice of the nodes of all
 * ranks, makes the rest of the tree for this slice, and all ranks gather all slices.
 *
 * Memory is by slices, so that what goes to one rank is contiguous: slice s of a rank's node k is `width`
 * nodes' slices behind the beginning of slice s. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/comm/comm.h"

enum {
    NODES_MAX = 64, /* of a rank at one time: two a level, of 31 levels */
    VIRTUAL_MAX = 1 << 20,
};

struct node {
    unsigned level;
    uint64_t index;
};

/* Nodes from left to right. */
struct row {
    struct node nodes[NODES_MAX];
    size_t count;
};

struct ctrun_fixed_sum {
    struct ctrun_group *group; /* kept */
    enum ctrun_dtype dtype;
    size_t element, length; /* bytes; elements of the sum */
    size_t ranks, rank;
    uint64_t all, first, end, next; /* virtual ranks; ours; the next to be added */
    struct row row;                 /* what was added */
    size_t width;                   /* nodes that there is room for */
    uint8_t *memory;                /* owned; width * length elements */
    uint8_t *arrived;               /* owned; all ranks' nodes, our slice */
    size_t *parts;                  /* owned; four arrays by rank, for the calls */
};

/* Adds the node of slot `from` to that of slot `to`. */
typedef void merge_fn(void *context, size_t to, size_t from);

/* Merges the last nodes of the row into their parents as far as possible. */
static void fold(struct row *row, uint64_t all, merge_fn *merge, void *context)
{
    while (row->count > 0) {
        struct node *top = &row->nodes[row->count - 1];
        const bool is_right = top->index % 2;

        if (UINT64_C(1) << top->level >= all)
            return; /* the root */
        if (is_right) {
            const struct node *left = row->count > 1 ? top - 1 : NULL;

            if (!left || left->level != top->level || left->index + 1 != top->index)
                return; /* it is another rank's */
            if (merge)
                merge(context, row->count - 2, row->count - 1);
            row->count--;
            top--;
        } else if ((top->index + 1) << top->level < all) {
            return; /* its sibling comes */
        }
        top->level++;
        top->index /= 2;
    }
}

static uint64_t begin_of(const struct ctrun_fixed_sum *sum, size_t rank)
{
    return sum->all * rank / sum->ranks;
}

/* Fills `row` with the nodes that a rank has when all is added; returns the most nodes that it has
 * at one time. */
static size_t plan_row(const struct ctrun_fixed_sum *sum, size_t rank, struct row *row)
{
    const uint64_t end = begin_of(sum, rank + 1);
    size_t most = 0;

    row->count = 0;
    for (uint64_t v = begin_of(sum, rank); v < end; v++) {
        row->nodes[row->count++] = (struct node){0, v};
        most = row->count > most ? row->count : most;
        fold(row, sum->all, NULL, NULL);
    }
    return most;
}

/* ---- Slices ------------------------------------------------------------------------------ */

static size_t slice_start(const struct ctrun_fixed_sum *sum, size_t s)
{
    return sum->length / sum->ranks * s +
           (s < sum->length % sum->ranks ? s : sum->length % sum->ranks);
}

static size_t slice_length(const struct ctrun_fixed_sum *sum, size_t s)
{
    return slice_start(sum, s + 1) - slice_start(sum, s);
}

static uint8_t *slot(const struct ctrun_fixed_sum *sum, size_t s, size_t k)
{
    return sum->memory +
           sum->element * (sum->width * slice_start(sum, s) + k * slice_length(sum, s));
}

/* Always left + right: which NaN is the result depends on the order, too. */
static void add(enum ctrun_dtype dtype, void *to, const void *from, size_t n)
{
    if (dtype == CTRUN_F32) {
        float *left = to;
        const float *right = from;

        for (size_t i = 0; i < n; i++)
            left[i] = left[i] + right[i];
    } else {
        double *left = to;
        const double *right = from;

        for (size_t i = 0; i < n; i++)
            left[i] = left[i] + right[i];
    }
}

static void merge_own(void *context, size_t to, size_t from)
{
    const struct ctrun_fixed_sum *sum = context;

    for (size_t s = 0; s < sum->ranks; s++)
        add(sum->dtype, slot(sum, s, to), slot(sum, s, from), slice_length(sum, s));
}

/* ---- Making ------------------------------------------------------------------------------ */

/* Checks that all ranks passed the same arguments; if not, all fail. */
static int compare(const struct ctrun_fixed_sum *sum, int rc, struct ctrun_error *err)
{
    const int64_t mine[] = {rc, (int64_t)sum->all, (int64_t)sum->length,
                            (int64_t)sum->dtype};
    enum {
        WORDS = sizeof mine / sizeof *mine
    };
    int64_t *all = ct_zalloc_array(sum->ranks, sizeof mine);
    int failed;

    if (!all)
        return ct_fail(err, -ENOMEM, "fixed sum: out of memory");
    failed = ctrun_all_gather(sum->group, mine, all, WORDS, CTRUN_I64, NULL,
                              rc < 0 ? NULL : err);
    for (size_t r = 0; r < sum->ranks && failed == 0 && rc == 0; r++) {
        if (all[r * WORDS] < 0)
            failed = ct_fail(
                err, CTRUN_E_MISMATCH,
                "fixed sum: rank %zu failed (%s); its own message says why", r,
                ct_error_name((int)all[r * WORDS]));
        else if (memcmp(all + r * WORDS, all, sizeof mine) != 0)
            failed = ct_fail(
                err, CTRUN_E_MISMATCH,
                "fixed sum: rank %zu has %" PRId64 " elements of type %s on %" PRId64
                " virtual ranks, rank 0 has %" PRId64 " of type %s on %" PRId64,
                r, all[r * WORDS + 2], ct_dtype_name((int)all[r * WORDS + 3]),
                all[r * WORDS + 1], all[2], ct_dtype_name((int)all[3]), all[1]);
    }
    free(all);
    return rc < 0 ? rc : failed;
}

static int check(const struct ctrun_fixed_sum *sum, struct ctrun_error *err)
{
    if (sum->all == 0 || sum->all > VIRTUAL_MAX)
        return ct_fail(err, -EINVAL,
                       "fixed sum: virtual_ranks is %" PRIu64 ", but must be 1 to %d",
                       sum->all, VIRTUAL_MAX);
    if (sum->dtype != CTRUN_F32 && sum->dtype != CTRUN_F64)
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "fixed sum: the dtype must be CTRUN_F32 or CTRUN_F64, not %s",
                       ct_dtype_name((int)sum->dtype));
    if (sum->length > SIZE_MAX / sum->element / NODES_MAX / sum->ranks)
        return ct_fail(err, -EINVAL, "fixed sum: %zu elements are too many",
                       sum->length);
    return 0;
}

/* Memory for our nodes, and for one slice of all ranks' nodes. */
static int build(struct ctrun_fixed_sum *sum, struct ctrun_error *err)
{
    struct row row;
    size_t total = 0;

    sum->width = plan_row(sum, sum->rank, &row);
    for (size_t r = 0; r < sum->ranks; r++) {
        (void)plan_row(sum, r, &row);
        total += row.count;
    }
    sum->memory = ct_zalloc_array(sum->width * sum->length + 1, sum->element);
    sum->parts = ct_zalloc_array(4 * sum->ranks, sizeof *sum->parts);
    if (sum->ranks > 1)
        sum->arrived = ct_zalloc_array(total * slice_length(sum, sum->rank) + 1,
                                       sum->element);
    return sum->memory && sum->parts && (sum->ranks == 1 || sum->arrived)
               ? 0
               : ct_fail(err, -ENOMEM, "fixed sum: out of memory");
}

int ctrun_fixed_sum_create(struct ctrun_fixed_sum **out, struct ctrun_group *group,
                           uint64_t virtual_ranks, size_t count, enum ctrun_dtype dtype,
                           struct ctrun_error *err)
{
    struct ctrun_fixed_sum *sum;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (group && ct_group_is_device(group))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "fixed sum: needs a group of the host");
    if (!(sum = ct_zalloc(sizeof *sum)))
        return ct_fail(err, -ENOMEM, "fixed sum: out of memory");
    sum->group = group;
    sum->dtype = dtype;
    sum->element = ctrun_dtype_size(dtype);
    sum->length = count;
    sum->ranks = group ? (size_t)ctrun_group_size(group) : 1;
    sum->rank = group ? (size_t)ctrun_group_rank(group) : 0;
    sum->all = virtual_ranks;
    sum->first = sum->next = 0;
    if ((rc = check(sum, err)) == 0) {
        sum->first = sum->next = begin_of(sum, sum->rank);
        sum->end = begin_of(sum, sum->rank + 1);
        rc = build(sum, err);
    }
    if (sum->ranks > 1)
        rc = compare(sum, rc, err);
    if (rc < 0) {
        ctrun_fixed_sum_destroy(sum);
        return rc;
    }
    *out = sum;
    return 0;
}

void ctrun_fixed_sum_destroy(struct ctrun_fixed_sum *sum)
{
    if (!sum)
        return;
    free(sum->memory);
    free(sum->arrived);
    free(sum->parts);
    free(sum);
}

/* ---- A step ------------------------------------------------------------------------------ */

void ctrun_fixed_sum_range(const struct ctrun_fixed_sum *sum, uint64_t *first,
                           uint64_t *end)
{
    if (first)
        *first = sum ? sum->first : 0;
    if (end)
        *end = sum ? sum->end : 0;
}

static int check_data(const struct ctrun_fixed_sum *sum, const void *data,
                      struct ctrun_error *err)
{
    if (!sum)
        return ct_fail_null(err, "fixed sum");
    return data || sum->length == 0
               ? 0
               : ct_fail(err, -EINVAL, "fixed sum: the pointer to the data is NULL");
}

int ctrun_fixed_sum_add(struct ctrun_fixed_sum *sum, const void *data,
                        struct ctrun_error *err)
{
    const size_t k = sum ? sum->row.count : 0;
    const int rc = check_data(sum, data, err);

    if (rc < 0)
        return rc;
    if (sum->next == sum->end)
        return ct_fail(err, CTRUN_E_USAGE,
                       "fixed sum: there is data of all %" PRIu64 " virtual ranks of "
                       "this rank already: call ctrun_fixed_sum_finish() next",
                       sum->end - sum->first);
    for (size_t s = 0; s < sum->ranks; s++)
        memcpy(slot(sum, s, k),
               (const uint8_t *)data + sum->element * slice_start(sum, s),
               sum->element * slice_length(sum, s));
    sum->row.nodes[sum->row.count++] = (struct node){0, sum->next++};
    fold(&sum->row, sum->all, merge_own, sum);
    return 0;
}

/* Whether all ranks have added all their data; every rank's error names the first one that has
 * not. */
static int check_complete(struct ctrun_fixed_sum *sum,
                          const struct ctrun_call_options *options,
                          struct ctrun_error *err)
{
    int64_t missing = sum->next < sum->end ? (int64_t)(sum->ranks - sum->rank) : 0;
    int rc = 0;

    if (sum->ranks > 1)
        rc = ctrun_all_reduce(sum->group, &missing, &missing, 1, CTRUN_I64, CTRUN_MAX,
                              options, err);
    if (rc < 0 || missing == 0)
        return rc;
    return ct_fail(err, CTRUN_E_USAGE,
                   "fixed sum: rank %zu has not added data for each of its virtual "
                   "ranks: call ctrun_fixed_sum_add() once for each",
                   sum->ranks - (size_t)missing);
}

struct slice_row {
    const struct ctrun_fixed_sum *sum;
    size_t *slots; /* where in `arrived` the row's nodes are */
};

static void merge_slice(void *context, size_t to, size_t from)
{
    const struct slice_row *at = context;
    const size_t n = slice_length(at->sum, at->sum->rank);
    const size_t bytes = n * at->sum->element;

    add(at->sum->dtype, at->sum->arrived + at->slots[to] * bytes,
        at->sum->arrived + at->slots[from] * bytes, n);
}

/* Makes the rest of the tree for our slice. The root takes the place of the first node. */
static void finish_slice(const struct ctrun_fixed_sum *sum)
{
    size_t slots[NODES_MAX], arrived = 0;
    struct slice_row context = {sum, slots};
    struct row all = {.count = 0}, row;

    for (size_t r = 0; r < sum->ranks; r++) {
        (void)plan_row(sum, r, &row);
        for (size_t k = 0; k < row.count; k++) {
            slots[all.count] = arrived++;
            all.nodes[all.count++] = row.nodes[k];
            fold(&all, sum->all, merge_slice, &context);
        }
    }
}

/* Sends the slices of our nodes to their ranks, and receives our slice of every rank's nodes. */
static int exchange(struct ctrun_fixed_sum *sum,
                    const struct ctrun_call_options *options, struct ctrun_error *err)
{
    size_t *const to = sum->parts, *const to_starts = to + sum->ranks;
    size_t *const from = to_starts + sum->ranks;
    struct ctrun_parts in = CTRUN_PARTS_INIT, out = CTRUN_PARTS_INIT;
    struct row row;

    for (size_t r = 0; r < sum->ranks; r++) {
        to[r] = sum->row.count * slice_length(sum, r);
        to_starts[r] = sum->width * slice_start(sum, r);
        (void)plan_row(sum, r, &row);
        from[r] = row.count * slice_length(sum, sum->rank);
    }
    in.counts = to;
    in.starts = to_starts;
    out.counts = from;
    return ctrun_all_to_all_v(sum->group, sum->memory, &in, sum->arrived, &out,
                              sum->dtype, options, err);
}

static int spread(struct ctrun_fixed_sum *sum, void *out,
                  const struct ctrun_call_options *options, struct ctrun_error *err)
{
    struct ctrun_parts parts = CTRUN_PARTS_INIT;

    for (size_t r = 0; r < sum->ranks; r++)
        sum->parts[r] = slice_length(sum, r);
    parts.counts = sum->parts;
    return ctrun_all_gather_v(sum->group, sum->arrived, out, &parts, sum->dtype,
                              options, err);
}

int ctrun_fixed_sum_finish(struct ctrun_fixed_sum *sum, void *out,
                           const struct ctrun_call_options *given,
                           struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    int rc = check_data(sum, out, err);

    if (rc == 0 && given)
        rc = ct_sized_read(&options, sizeof options, given, "CTRUN_CALL_OPTIONS_INIT",
                           err);
    if (rc == 0 && options.work)
        rc = ct_fail(err, -EINVAL,
                     "fixed sum: finish cannot run in the background: options.work "
                     "must be NULL");
    if (rc < 0 || (rc = check_complete(sum, &options, err)) < 0)
        return rc;
    if (sum->ranks == 1) {
        memcpy(out, sum->memory, sum->length * sum->element);
    } else if ((rc = exchange(sum, &options, err)) == 0) {
        finish_slice(sum);
        rc = spread(sum, out, &options, err);
    }
    sum->next = sum->first;
    sum->row.count = 0;
    return rc;
}
