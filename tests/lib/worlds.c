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

    options.timeout_ms = 30000;
    options.shm = world->wire != WIRE_TCP;
    return ranks_open(rank, worlds_host_of(world->wire, rank), &options);
}

void worlds_run(int largest, ranks_fn *body)
{
    for (int size = 1; size <= largest; size++) {
        for (int wire = 0; wire < WIRES; wire++) {
            struct world world = {size, (enum wire)wire};
            if (ranks_run(size, body, &world) != 0)
                fail_msg("%d ranks, wire %d", size, wire);
        }
    }
}
