/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of every size over each kind of wire, for tests of what groups compute. */
#pragma once

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
/* In a rank; the group of all is opened before and closed after. */
typedef void worlds_fn(struct ctrun_group *group, void *context);
/* Each runs `body` in one world after the other; cmocka's test fails with the first that fails. */
/* Of 1 to `largest` ranks, over each wire. */
void worlds_run(int largest, worlds_fn *body);
/* Of so many ranks, over shared memory and over TCP, where a thread moves reductions on. */
void worlds_run_with(int ranks, worlds_fn *body, void *context);
/* In this world only. */
void worlds_run_in(struct world world, worlds_fn *body, void *context);
/* WORLDS_TEST(name, largest) { ... } is a test with this body, a worlds_fn, in worlds_run();
 * WORLD_TEST(name, ranks) { ... } in worlds_run_with(), TORCH_WORLD_TEST() too. */
#define WORLDS_TEST(name, largest)                                                     \
    WORLD_TEST_BY(TEST(name), name, worlds_run(largest, name##_in_rank))
#define WORLD_TEST(name, ranks)                                                        \
    WORLD_TEST_BY(TEST(name), name, worlds_run_with(ranks, name##_in_rank, NULL))
#define TORCH_WORLD_TEST(name, ranks, names)                                           \
    WORLD_TEST_BY(TORCH_TEST(name, names), name,                                       \
                  worlds_run_with(ranks, name##_in_rank, NULL))
#define WORLD_TEST_BY(test, name, call)                                                \
    static worlds_fn name##_in_rank;                                                   \
    test                                                                               \
    {                                                                                  \
        call;                                                                          \
    }                                                                                  \
    static void name##_in_rank(struct ctrun_group *group, void *context)

/* Values whose sum depends on the order of the ranks. */
float worlds_rough_value(int rank, size_t i);
