/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that save a sharded checkpoint in the background.
 *
 * usage: shards DIRECTORY MIB RANKS SAVES [reserve]
 *
 * With "reserve" memory for the copy is there before the first save, as after some steps of training. Each rank has its
 * share of MIB. Rank 0 prints a JSON line for each save: milliseconds that ctrun_shards_save() took,
 * those of a memcpy() of as many bytes at the same time on all ranks (wall and processor time of both), and those until
 * all was on the disk. The source is written to before each copy, as by a step. */
#include "tests/bench/took.h"
#include "tests/lib/ranks.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/shards.h"

enum {
    TENSORS = 16,
};

struct plan {
    const char *directory;
    size_t bytes; /* of a rank */
    int ranks;
    uint64_t saves;
    bool reserves;
};

static void write_anew(unsigned char *data, size_t bytes, int value,
                       struct ctrun_group *group)
{
    struct ctrun_error err;

    memset(data, value, bytes);
    CHECK_OK(ctrun_barrier(group, NULL, &err));
}

struct state {
    struct ctrun_tensor tensors[TENSORS];
    char names[TENSORS][32];
};

static void describe(struct state *state, int rank, unsigned char *data, size_t bytes)
{
    for (int i = 0; i < TENSORS; i++) {
        struct ctrun_tensor *tensor = &state->tensors[i];

        *tensor = (struct ctrun_tensor)CTRUN_TENSOR_INIT;
        CHECK(ct_format(state->names[i], sizeof state->names[i], "rank%d.tensor%d",
                        rank, i) > 0);
        tensor->name = state->names[i];
        tensor->dtype = CTRUN_U8;
        tensor->dims = 1;
        tensor->sizes[0] = (int64_t)(bytes / TENSORS);
        tensor->data = data + (size_t)i * (bytes / TENSORS);
    }
}

static int body(int rank, void *context)
{
    const struct plan *plan = context;
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    struct ctrun_group *group = ranks_open(rank, NULL, NULL);
    struct ctrun_group *own = ranks_open(rank, NULL, NULL); /* the thread's */
    unsigned char *data = malloc(plan->bytes), *copy = malloc(plan->bytes);
    struct ctrun_shards *shards;
    struct state state;
    struct ctrun_error err;

    CHECK(data && copy);
    describe(&state, rank, data, plan->bytes);
    memset(copy, 1, plan->bytes);
    options.keep = 1;
    options.async = true;
    CHECK_OK(ctrun_shards_open(&shards, plan->directory, own, &options, &err));
    if (plan->reserves) {
        CHECK_OK(ctrun_shards_reserve(shards, state.tensors, TENSORS, &err));
        ct_copy_settle(&shards->copy, true);
    }
    for (uint64_t i = 0; i < plan->saves; i++) {
        struct took from, copied, stalled;

        write_anew(data, plan->bytes, (int)i + 2, group);
        from = took_begin();
        memcpy(copy, data, plan->bytes);
        copied = took_end(from);
        write_anew(data, plan->bytes, (int)i + 3, group);
        from = took_begin();
        CHECK_OK(
            ctrun_shards_save(shards, i + 1, state.tensors, TENSORS, NULL, 0, &err));
        stalled = took_end(from);
        CHECK_OK(ctrun_shards_wait(shards, &err));
        if (rank == 0)
            printf("{\"stall_ms\": %.2f, \"stall_cpu_ms\": %.2f, \"memcpy_ms\": %.2f, "
                   "\"memcpy_cpu_ms\": %.2f, \"disk_ms\": %.2f}\n",
                   stalled.wall_ms, stalled.cpu_ms, copied.wall_ms, copied.cpu_ms,
                   took_end(from).wall_ms);
        fflush(stdout);
    }
    ctrun_shards_close(shards);
    ctrun_group_close(own);
    ctrun_group_close(group);
    free(data);
    free(copy);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t mib, ranks;
    struct plan plan = {.directory = argc > 1 ? argv[1] : NULL,
                        .reserves = argc == 6 && strcmp(argv[5], "reserve") == 0};

    if ((argc != 5 && !plan.reserves) || ct_parse_u64(argv[2], 1, 1 << 20, &mib) < 0 ||
        ct_parse_u64(argv[3], 1, RANKS_MAX, &ranks) < 0 ||
        ct_parse_u64(argv[4], 1, 1000, &plan.saves) < 0) {
        fputs("usage: shards DIRECTORY MIB RANKS SAVES [reserve]\n", stderr);
        return 2;
    }
    plan.ranks = (int)ranks;
    plan.bytes = (size_t)(mib << 20) / ranks;
    return ranks_run(plan.ranks, body, &plan) != 0;
}
