/* SPDX-License-Identifier: Apache-2.0 */
/* Times the host back end's all-reduce of f32, SUM, between forked ranks.
 *
 * usage: all_reduce direct|staged|tcp RANKS ROUNDS
 *   direct  shared memory, data in ctrun_group_alloc() memory, as DDP has its gradients
 *   staged  shared memory, ordinary memory
 *   tcp     loopback
 * Prints "BYTES MICROSECONDS" of each call, on rank 0; 0 bytes are a barrier. The data are written anew before
 * each call and a barrier precedes it, as in the other programs here. */
#include "tests/lib/ranks.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

static const size_t sizes[] = {0,       4,       8,        1024,     65536,
                               1 << 20, 4799528, 25 << 20, 100 << 20};
static const int repeats[] = {200, 200, 200, 200, 100, 40, 20, 4, 4};
enum {
    SIZES = sizeof sizes / sizeof *sizes
};

struct plan {
    const char *mode;
    int rounds;
};

static void time_calls(struct ctrun_group *group, float *data, int size)
{
    size_t count = sizes[size] / sizeof *data;
    struct ctrun_error err;

    for (int i = 0; i < repeats[size]; i++) {
        uint64_t start_ns;
        for (size_t k = 0; k < count; k++)
            data[k] = 1e-3f * (float)i;
        CHECK_OK(ctrun_barrier(group, NULL, &err));
        start_ns = ct_now_ns();
        if (count == 0)
            CHECK_OK(ctrun_barrier(group, NULL, &err));
        else
            CHECK_OK(ctrun_all_reduce(group, data, data, count, CTRUN_F32, CTRUN_SUM,
                                      NULL, &err));
        if (ctrun_group_rank(group) == 0)
            printf("%zu %.3f\n", sizes[size], (double)(ct_now_ns() - start_ns) / 1e3);
    }
}

static int body(int rank, void *context)
{
    const struct plan *plan = context;
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *group;
    struct ctrun_error err;
    void *data;

    options.shm = strcmp(plan->mode, "tcp") != 0;
    group = ranks_open(rank, NULL, &options);
    if (strcmp(plan->mode, "direct") == 0)
        CHECK_OK(ctrun_group_alloc(group, sizes[SIZES - 1], &data, &err));
    else
        data = aligned_alloc(4096, sizes[SIZES - 1]);
    for (int round = 0; round < plan->rounds; round++)
        for (int size = 0; size < SIZES; size++)
            time_calls(group, data, size);
    if (strcmp(plan->mode, "direct") != 0)
        free(data);
    ctrun_group_close(group);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t ranks, rounds;
    struct plan plan;

    if (argc != 4 || ct_parse_u64(argv[2], 1, RANKS_MAX, &ranks) < 0 ||
        ct_parse_u64(argv[3], 1, 1000, &rounds) < 0) {
        fprintf(stderr, "usage: all_reduce direct|staged|tcp RANKS ROUNDS\n");
        return 2;
    }
    plan = (struct plan){argv[1], (int)rounds};
    return ranks_run((int)ranks, body, &plan) != 0;
}
