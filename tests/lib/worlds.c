/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/worlds.h"

#include "tests/lib/test.h"

const char *worlds_host_of(enum wire wire, int rank)
{
    /* Mixed: hosts of unequal size, whose members are not next to each other. */
    static const char *const hosts[] = {"a", "b", "a", "c", "a", "b", "c", "c"};

    return wire == WIRE_MIXED ? hosts[rank] : NULL;
}

struct ctrun_group *worlds_open(int rank, const struct world *world)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;

    options.timeout_ms = 90000;
    options.shm = world->wire != WIRE_TCP;
    return ranks_open(rank, worlds_host_of(world->wire, rank), &options);
}

struct run {
    struct world world;
    worlds_fn *body;
    void *context;
};

static int run_rank(int rank, void *context)
{
    const struct run *run = context;
    struct ctrun_group *group = worlds_open(rank, &run->world);

    run->body(group, run->context);
    ctrun_group_close(group);
    return 0;
}

void worlds_run_in(struct world world, worlds_fn *body, void *context)
{
    struct run run = {world, body, context};

    if (ranks_run(world.size, run_rank, &run) != 0)
        fail_msg("%d ranks, wire %d", world.size, world.wire);
}

void worlds_run(int largest, worlds_fn *body)
{
    for (int size = 1; size <= largest; size++)
        for (int wire = 0; wire < WIRES; wire++)
            worlds_run_in((struct world){size, (enum wire)wire}, body, NULL);
}

void worlds_run_with(int ranks, worlds_fn *body, void *context)
{
    for (int wire = 0; wire < WIRE_MIXED; wire++)
        worlds_run_in((struct world){ranks, (enum wire)wire}, body, context);
}

float worlds_rough_value(int rank, size_t i)
{
    uint32_t bits = ((uint32_t)i * 2654435761u) ^ ((uint32_t)(rank + 1) * 40503u);

    bits = (bits ^ bits >> 13) * 0x5bd1e995u;
    return (float)(bits >> 8) / 1e3f * (bits % 3 ? 1.0f : -1e-4f);
}
