/* SPDX-License-Identifier: Apache-2.0 */
/* A set of CPU numbers, large enough for any kernel, and its text: "0-3,8". A value: copied by
 * assignment, empty when zeroed. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    CPUSET_CPUS_MAX = 8192, /* the kernel's own maximum (CONFIG_MAXSMP) */
    CPUSET_TEXT_MAX = 1024
};

struct cpuset {
    cpu_set_t sets[CPUSET_CPUS_MAX / CPU_SETSIZE];
};

/* Parses the format that the kernel prints and numactl reads: "0-3,8", blanks and a newline at
 * the end are fine. 0, -EINVAL, or -ERANGE for numbers beyond CPUSET_CPUS_MAX. */
int cpuset_parse(struct cpuset *out, const char *text);
/* Writes the same format; a text that is too long ends in "...". */
void cpuset_format(const struct cpuset *set, char *dst, size_t size);

void cpuset_add(struct cpuset *set, int cpu);
bool cpuset_has(const struct cpuset *set, int cpu);
int cpuset_count(const struct cpuset *set);
/* The lowest member >= from, or -1: to walk over a set. */
int cpuset_next(const struct cpuset *set, int from);
void cpuset_intersect(struct cpuset *set, const struct cpuset *with);
void cpuset_unite(struct cpuset *set, const struct cpuset *with);
bool cpuset_is_equal(const struct cpuset *a, const struct cpuset *b);
