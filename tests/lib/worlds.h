/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of every size over each kind of wire, for tests of what groups compute. */
#ifndef TESTS_LIB_WORLDS_H
#define TESTS_LIB_WORLDS_H

#include "tests/lib/ranks.h"

/* How the ranks are spread over hosts. */
enum wire {
    WIRE_SHM,
    WIRE_TCP,
    WIRE_MIXED,
    WIRES
};

struct world {
    int size;
    enum wire wire;
};

/* The host of a rank, for ranks_place(). */
const char *worlds_host_of(enum wire wire, int rank);
/* In a rank: the group of all; exits on failure. */
struct ctrun_group *worlds_open(int rank, const struct world *world);
/* Runs body, whose context is a struct world, in worlds of 1 to `largest` ranks; cmocka's test fails
 * with the first that fails. */
void worlds_run(int largest, ranks_fn *body);

#endif
