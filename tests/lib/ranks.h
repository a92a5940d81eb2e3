/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of real processes in one test: forks the ranks, gives them a store, collects them.
 *
 *     static int body(int rank, void *context) { ... CHECK(...) ...; return 0; }
 *     assert_int_equal(ranks_run(4, body, NULL), 0);
 *
 * The store is memory that all ranks share; a rank that is killed does not damage it. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "worker_sdk/comm/comm.h"

/* In a rank: cmocka's asserts belong to the parent. */
#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__,           \
                    #condition);                                                       \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)
/* A call that must succeed: prints the reason when it does not. `err` must be in scope. */
#define CHECK_OK(call)                                                                 \
    do {                                                                               \
        int check_rc_ = (call);                                                        \
        if (check_rc_ < 0) {                                                           \
            fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call,           \
                    check_rc_, err.text);                                              \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

enum {
    RANKS_MAX = 16,
    RANKS_DEADLINE_MS = 180000
};

/* The n ranks of the current run, for the parent and, by inheritance, for the ranks. */
struct ranks;

typedef int ranks_fn(int rank, void *context);

/* Forks, waits for all (SIGKILL at the deadline). 0 when all returned 0. */
int ranks_run(int n, ranks_fn *body, void *context);
/* RANKS_TEST(name, n) { ...; return 0; } is a test with this body, a ranks_fn, in each of n ranks. */
#define RANKS_TEST(name, n) RANKS_TEST_AROUND(name, n, NULL, NULL)
#define RANKS_TEST_AROUND(name, n, before, after)                                      \
    static ranks_fn name##_in_rank;                                                    \
    TEST_AROUND(name, before, after)                                                   \
    {                                                                                  \
        assert_int_equal(ranks_run(n, name##_in_rank, NULL), 0);                       \
    }                                                                                  \
    static int name##_in_rank(int rank, void *context)
/* The halves of ranks_run(). statuses: n wait() statuses. The caller may kill ranks in between. */
struct ranks *ranks_start(int n, ranks_fn *body, void *context);
pid_t ranks_pid(const struct ranks *ranks, int rank);
int ranks_finish(struct ranks *ranks, int *statuses);
/* In a rank or the parent: counts up / waits until the counter is at least `value`. */
void ranks_signal(int counter);
void ranks_await(int counter, unsigned value);

/* In a rank: its place. Counts the groups that it opens. host_id as in ct_group_place. */
struct ct_group_place ranks_place(int rank, const char *host_id);
/* Opens a group of all ranks; exits on failure. options may be NULL. */
struct ctrun_group *ranks_open(int rank, const char *host_id,
                               const struct ctrun_group_options *options);
/* The store by itself, for `n` ranks that are threads of the caller: create once. */
void ranks_new_store(int n);
