/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded checkpoints: every rank has a slice of the state and writes it in the background, and a run
 * that is started again, with as many workers or others, continues where the last one was.
 *
 *     cc 10_checkpoint.c -o checkpoint $(pkg-config --cflags --libs ctrun)
 *     ctrun --standalone --nproc-per-node=3 ./checkpoint FOLDER
 *     ctrun --standalone --nproc-per-node=2 ./checkpoint FOLDER */
#include <ctrun.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ELEMENTS = 1000, /* of the state, over all ranks */
    STEPS = 20,      /* of one run */
    SAVE_STEPS = 5
};

static float slice[ELEMENTS]; /* of which this rank has the first `count` */
static struct ctrun_tensor state = CTRUN_TENSOR_INIT;

/* A number of the checkpoint's metadata: steps go up to 2^53. */
static int read_number(const struct ctrun_checkpoint *checkpoint, const char *key,
                       uint64_t *out, struct ctrun_error *err)
{
    const char *text = ctrun_checkpoint_metadata(checkpoint, key);
    char *end;

    if (text && *text >= '0' && *text <= '9') {
        *out = strtoull(text, &end, 10); /* too large: 2^64 - 1 */
        if (!*end && *out <= 1ULL << 53)
            return 0;
    }
    snprintf(err->text, sizeof err->text,
             "checkpoint: %s '%s': a number up to 2^53 is needed", key,
             text ? text : "");
    return err->code = CTRUN_E_BAD_CHECKPOINT;
}

/* Loads our slice of the newest checkpoint; *step: the step after it. At the first start there is
 * no checkpoint. */
static int load(const char *folder, uint64_t *step, struct ctrun_error *err)
{
    struct ctrun_checkpoint *checkpoint;
    int rc = ctrun_checkpoint_open(&checkpoint, folder, err);

    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return rc;
    if ((rc = read_number(checkpoint, "next_step", step, err)) == 0)
        rc = ctrun_checkpoint_load(checkpoint, &state, err);
    ctrun_checkpoint_close(checkpoint);
    return rc;
}

static int save(struct ctrun_shards *shards, uint64_t next_step,
                struct ctrun_error *err)
{
    char text[24];
    const struct ctrun_metadata metadata[] = {{"next_step", text}};

    snprintf(text, sizeof text, "%llu", (unsigned long long)next_step);
    return ctrun_shards_save(shards, next_step, &state, 1, metadata, 1, err);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "checkpoints";
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    struct ctrun_group_options host = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_session *session;
    struct ctrun_group *world, *savers;
    struct ctrun_shards *shards;
    struct ctrun_error err;
    uint64_t step = 0, end;
    double sum = 0;

    options.async = true;  /* its thread has a group of its own, */
    host.backend = "host"; /* which sends what is in the host's memory */
    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0 ||
        ctrun_group_split(&savers, session, world, 0, &host, &err) < 0 ||
        ctrun_shards_open(&shards, folder, savers, &options, &err) < 0)
        return ctrun_fail_worker(&err);
    state.name = "state";
    state.data = slice;
    state.dims = 1;
    state.whole[0] = ELEMENTS;
    state.starts[0] = ELEMENTS * ctrun_rank(session) / ctrun_world_size(session);
    state.sizes[0] = ELEMENTS * (ctrun_rank(session) + 1) / ctrun_world_size(session) -
                     state.starts[0];
    if (ctrun_shards_reserve(shards, &state, 1, &err) < 0 || /* before the first save */
        load(folder, &step, &err) < 0)
        return ctrun_fail_worker(&err);
    for (end = step + STEPS; step < end && !ctrun_should_stop(session);) {
        for (int64_t i = 0; i < state.sizes[0]; i++)
            slice[i] += 1; /* what a step of training does */
        ctrun_step(session, step++);
        if (step % SAVE_STEPS == 0 && save(shards, step, &err) < 0)
            return ctrun_fail_worker(&err);
    }
    for (int64_t i = 0; i < state.sizes[0]; i++)
        sum += (double)slice[i];
    if (ctrun_shards_wait(shards, &err) < 0 || /* the last one is on the disk */
        ctrun_all_reduce(world, &sum, &sum, 1, CTRUN_F64, CTRUN_SUM, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    if (ctrun_rank(session) == 0)
        printf("step %llu: the sum is %.0f\n", (unsigned long long)step, sum);
    ctrun_shards_close(shards);
    ctrun_group_close(savers);
    ctrun_group_close(world);
    ctrun_close(session);
    return 0;
}
