/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/lateness.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

/* How far a sample may be from the median, in deviations; what the median distance is in
 * deviations. */
#define FAR                 3.0
#define DEVIATIONS_A_MEDIAN 1.4826

int lateness_compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

static double median(double *list, int count)
{
    qsort(list, (size_t)count, sizeof *list, lateness_compare);
    return count % 2 ? list[count / 2] : (list[count / 2 - 1] + list[count / 2]) / 2;
}

/* ---- One step ---------------------------------------------------------------------------- */

/* The mean of the middle half of `sorted` without one element of this value; sums[i]: of the first
 * i. */
static double middle_of_others(const double *sorted, const double *sums, int ranks,
                               double own)
{
    const int others = ranks - 1;
    const int from = others / 4, to = others - from;
    int at = 0;
    double sum;

    while (sorted[at] < own)
        at++;
    if (at < from)
        sum = sums[to + 1] - sums[from + 1];
    else if (at >= to)
        sum = sums[to] - sums[from];
    else
        sum = sums[to + 1] - sums[from] - own;
    return sum / (to - from);
}

/* late[rank * LATENESS_STEPS + step] */
static void add_step(double *late, int step, const double *arrivals, int ranks,
                     double *sorted, double *sums)
{
    memcpy(sorted, arrivals, (size_t)ranks * sizeof *sorted);
    qsort(sorted, (size_t)ranks, sizeof *sorted, lateness_compare);
    sums[0] = 0;
    for (int i = 0; i < ranks; i++)
        sums[i + 1] = sums[i] + sorted[i];
    for (int i = 0; i < ranks; i++)
        late[i * LATENESS_STEPS + step] =
            arrivals[i] - middle_of_others(sorted, sums, ranks, arrivals[i]);
}

/* ---- One rank ---------------------------------------------------------------------------- */

/* The mean of the samples, far ones limited to FAR; *variance is the variance of the mean. */
static double find_mean(const double *late, int steps, double *variance)
{
    double list[LATENESS_STEPS], far[LATENESS_STEPS];
    double middle, limit, mean = 0, square = 0;

    memcpy(list, late, (size_t)steps * sizeof *list);
    middle = median(list, steps);
    for (int i = 0; i < steps; i++)
        far[i] = late[i] > middle ? late[i] - middle : middle - late[i];
    limit = FAR * DEVIATIONS_A_MEDIAN * median(far, steps);
    for (int i = 0; i < steps; i++) {
        list[i] = late[i] > middle + limit   ? middle + limit
                  : late[i] < middle - limit ? middle - limit
                                             : late[i];
        mean += list[i] / steps;
    }
    for (int i = 0; i < steps; i++)
        square += (list[i] - mean) * (list[i] - mean);
    *variance = steps > 1 ? square / (steps - 1) / steps : 0;
    return mean;
}

static bool is_significant(const struct lateness *found, double variance)
{
    return found->steps >= LATENESS_STEPS_MIN && found->late_ns >= LATENESS_NS_MIN &&
           found->share >= LATENESS_SHARE_MIN &&
           found->late_ns * found->late_ns >= LATENESS_SURE * LATENESS_SURE * variance;
}

int lateness_find(const double *arrivals, const double *step_ns, int steps, int ranks,
                  double *late_ns, struct lateness *out)
{
    double *late = ct_zalloc_array((size_t)ranks * LATENESS_STEPS, sizeof *late);
    double *room = ct_zalloc_array(2 * (size_t)ranks + 1, sizeof *room);
    double list[LATENESS_STEPS], worst_variance = 0, variance, step;

    if (!late || !room) {
        free(late);
        free(room);
        return -ENOMEM;
    }
    for (int i = 0; i < steps; i++)
        add_step(late, i, arrivals + (size_t)i * (size_t)ranks, ranks, room,
                 room + ranks);
    *out = (struct lateness){.rank = -1, .steps = steps};
    for (int i = 0; i < ranks; i++) {
        late_ns[i] = find_mean(late + (size_t)i * LATENESS_STEPS, steps, &variance);
        if (out->rank < 0 || late_ns[i] > out->late_ns) {
            out->rank = i;
            out->late_ns = late_ns[i];
            worst_variance = variance;
        }
    }
    free(late);
    free(room);
    memcpy(list, step_ns, (size_t)steps * sizeof *list);
    step = median(list, steps);
    out->share = step > 0 ? out->late_ns / step : 0;
    return is_significant(out, worst_variance);
}
