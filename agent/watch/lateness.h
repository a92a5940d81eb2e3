/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several ranks arrives last, step after step, by more than chance. Pure.
 *
 * Late is a rank by as much as it comes after the middle half of the others. Of a rank whose steps are late
 * by very different times (a checkpoint now and then) the far ones count as if they were three deviations from the
 * median: what happens once in a while makes nobody a straggler. */
#pragma once

enum {
    LATENESS_STEPS = 100,    /* that are looked at: the last ones */
    LATENESS_STEPS_MIN = 30, /* fewer prove nothing */
    LATENESS_NS_MIN = 1000000
};

/* Who is reported: its mean lateness is LATENESS_NS_MIN at least, this part of a step, and so many times what chance
 * makes of it. */
#define LATENESS_SHARE_MIN 0.025
#define LATENESS_SURE      4.5

struct lateness {
    int rank; /* index */
    int steps;
    double late_ns; /* mean */
    double share;   /* of the median step */
};

/* arrivals[step * ranks + rank], after any moment of that step; step_ns: how long each took. 2 ranks and 1 step
 * at least; LATENESS_STEPS at most. late_ns[ranks] gets the mean lateness of each, below 0 for one that is early.
 * 1: *out tells who; 0: nobody; -ENOMEM. */
int lateness_find(const double *arrivals, const double *step_ns, int steps, int ranks,
                  double *late_ns, struct lateness *out);
/* Of two doubles, for qsort(): the smaller one comes first. */
int lateness_compare(const void *a, const void *b);
