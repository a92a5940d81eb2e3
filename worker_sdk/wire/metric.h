/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that a rank reports, by name: gauges, as in Prometheus. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CT_METRICS_MAX = 32,      /* names of one rank */
    CT_METRIC_NAME_MAX = 64,  /* with its NUL */
    CT_METRIC_VALUE_MAX = 32, /* of its text, with the NUL */
};

/* The metric that an agent reports for a rank: --stragglers. */
#define CT_METRIC_LATE "ctrun_rank_late_seconds"
/* The agent of group rank 0 reports this one, of nodes: the node takes the place of the rank. */
#define CT_METRIC_NODE_LATE "ctrun_node_late_seconds"

struct ct_metric {
    char name[CT_METRIC_NAME_MAX];
    double value; /* NaN and infinities, too */
};

/* True when name[size] is a text that Prometheus takes as the name of a metric and that nobody else
 * uses: "ctrun..." is ours, "__..." its own. */
bool ct_metric_is_name(const char *name, size_t size);
/* As Prometheus writes it, in the fewest digits that say it exactly: "0.1", "NaN", "+Inf". */
void ct_metric_format(char text[CT_METRIC_VALUE_MAX], double value);
/* The bytes of a double, for memory and wires that hold whole numbers. */
uint64_t ct_metric_to_bits(double value);
double ct_metric_from_bits(uint64_t bits);
