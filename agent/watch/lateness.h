/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several ranks arrives last, step after step, by more than chance. Pure.
 *
 * A rank's lateness is how long it comes after the middle half of the others. If a rank's lateness varies much
 * (a checkpoint now and then), samples far from the median count as three deviations from it: rare events
 * make no rank a straggler. */
#pragma once

enum {
    LATENESS_STEPS = 100,    /* steps that are used: the last ones */
    LATENESS_STEPS_MIN = 30, /* fewer prove nothing */
    LATENESS_NS_MIN = 1000000
};

/* A rank is reported if its mean lateness is LATENESS_NS_MIN at least, and this part of a step, and
 * so many times its random error. */
#define LATENESS_SHARE_MIN 0.025
#define LATENESS_SURE      4.5

struct lateness {
    int rank; /* index */
    int steps;
    double late_ns; /* mean */
    double share;   /* part of the median step */
};

/* arrivals[step * ranks + rank]: time since some moment of that step; step_ns: how long each step
 * took. 2 ranks and 1 step at least; LATENESS_STEPS at most. late_ns[ranks] gets the mean lateness
 * of each rank, below 0 if it is early. 1: *out has the late rank; 0: none; -ENOMEM. */
int lateness_find(const double *arrivals, const double *step_ns, int steps, int ranks,
                  double *late_ns, struct lateness *out);
/* Compares two doubles, for qsort(): the smaller one comes first. */
int lateness_compare(const void *a, const void *b);
