/* SPDX-License-Identifier: Apache-2.0 */
/* Times an all-reduce of f32, SUM, between forked ranks.
 *
 * usage: all_reduce direct|staged|tcp|nccl RANKS ROUNDS [GPUS]
 *   direct  shared memory, data in ctrun_group_alloc() memory, as DDP has its gradients
 *   staged  shared memory, ordinary memory
 *   tcp     loopback
 *   nccl    memory of a GPU; more ranks than GPUS (default 1) share them, and are connected by sockets
 * ROUNDS 0: one call of each size, as a test.
 * Prints "BYTES MICROSECONDS" of each call, on rank 0; 0 bytes are a barrier. The data are written anew before
 * each call (not on a GPU, where they are zeroes) and a barrier precedes it, as in the other programs here. */
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
    int ranks, rounds, gpus;
};

static bool has_mode(const struct plan *plan, const char *mode)
{
    return strcmp(plan->mode, mode) == 0;
}

static void time_calls(struct ctrun_group *group, float *data, int size, int calls,
                       bool is_host)
{
    size_t count = sizes[size] / sizeof *data;
    struct ctrun_error err;

    for (int i = 0; i < calls; i++) {
        uint64_t start_ns;
        for (size_t k = 0; is_host && k < count; k++)
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

/* NCCL refuses two ranks of one host on one GPU: each is a host of its own. */
static void share_gpus(int rank)
{
    char name[24];

    (void)ct_format(name, sizeof name, "rank-%d", rank);
    setenv("NCCL_HOSTID", name, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0); /* NCCL 2.30 and newer */
}

static struct ctrun_group *open_group(int rank, const struct plan *plan)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err;

    options.shm = !has_mode(plan, "tcp");
    if (has_mode(plan, "nccl")) {
        options.backend = "nccl";
        place.device = 1 + rank % plan->gpus;
        if (plan->ranks > plan->gpus)
            share_gpus(rank);
    }
    CHECK_OK(ct_group_open(&group, &place, &options, &err));
    return group;
}

static int body(int rank, void *context)
{
    const struct plan *plan = context;
    const bool is_host = !has_mode(plan, "nccl");
    const bool is_groups = !is_host || has_mode(plan, "direct");
    struct ctrun_group *group = open_group(rank, plan);
    struct ctrun_error err;
    void *data;

    if (is_groups)
        CHECK_OK(ctrun_group_alloc(group, sizes[SIZES - 1], &data, &err));
    else
        data = aligned_alloc(4096, sizes[SIZES - 1]);
    for (int size = 0; plan->rounds == 0 && size < SIZES; size++)
        time_calls(group, data, size, 1, is_host);
    for (int round = 0; round < plan->rounds; round++)
        for (int size = 0; size < SIZES; size++)
            time_calls(group, data, size, repeats[size], is_host);
    if (!is_groups)
        free(data);
    ctrun_group_close(group);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t ranks, rounds, gpus = 1;
    struct plan plan;

    if (argc < 4 || argc > 5 || ct_parse_u64(argv[2], 1, RANKS_MAX, &ranks) < 0 ||
        ct_parse_u64(argv[3], 0, 1000, &rounds) < 0 ||
        (argc == 5 && ct_parse_u64(argv[4], 1, RANKS_MAX, &gpus) < 0)) {
        fprintf(stderr,
                "usage: all_reduce direct|staged|tcp|nccl RANKS ROUNDS [GPUS]\n");
        return 2;
    }
    plan = (struct plan){argv[1], (int)ranks, (int)rounds, (int)gpus};
    return ranks_run((int)ranks, body, &plan) != 0;
}
