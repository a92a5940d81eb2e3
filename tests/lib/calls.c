/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/calls.h"

enum {
    COUNT = 20000 /* for each rank */
};

static float in[CALL_RANKS_MAX * COUNT], out[CALL_RANKS_MAX * COUNT];

static int pass_on(struct ctrun_group *group, struct ctrun_error *err)
{
    const int me = ctrun_group_rank(group), size = ctrun_group_size(group);
    int rc = ctrun_batch_begin(group, err);

    if (rc == 0)
        rc = ctrun_send(group, in, COUNT, CTRUN_F32, (me + 1) % size, NULL, err);
    if (rc == 0)
        rc = ctrun_recv(group, out, COUNT, CTRUN_F32, (me + size - 1) % size, NULL,
                        err);
    return rc < 0 ? rc : ctrun_batch_end(group, NULL, err);
}

int call_make(struct ctrun_group *group, enum call_kind kind, int source,
              struct ctrun_error *err)
{
    static const size_t counts[CALL_RANKS_MAX] = {COUNT, COUNT, COUNT, COUNT};
    static const size_t starts[CALL_RANKS_MAX] = {0, COUNT, 2 * COUNT, 3 * COUNT};
    const struct ctrun_parts parts = {sizeof parts, counts, starts};

    switch (kind) {
    case CALL_ALL_REDUCE:
        return ctrun_all_reduce(group, in, in, COUNT, CTRUN_F32, CTRUN_SUM, NULL, err);
    case CALL_REDUCE:
        return ctrun_reduce(group, in, out, COUNT, CTRUN_F32, CTRUN_SUM, 0, NULL, err);
    case CALL_BROADCAST:
        return ctrun_broadcast(group, in, in, COUNT, CTRUN_F32, source, NULL, err);
    case CALL_ALL_GATHER:
        return ctrun_all_gather(group, in, out, COUNT, CTRUN_F32, NULL, err);
    case CALL_ALL_GATHER_V:
        return ctrun_all_gather_v(group, in, out, &parts, CTRUN_F32, NULL, err);
    case CALL_REDUCE_SCATTER:
        return ctrun_reduce_scatter(group, in, out, COUNT, CTRUN_F32, CTRUN_SUM, NULL,
                                    err);
    case CALL_BARRIER: return ctrun_barrier(group, NULL, err);
    case CALL_ALL_TO_ALL:
        return ctrun_all_to_all(group, in, out, COUNT, CTRUN_F32, NULL, err);
    case CALL_ALL_TO_ALL_V:
        return ctrun_all_to_all_v(group, in, &parts, out, &parts, CTRUN_F32, NULL, err);
    case CALL_GATHER:
        return ctrun_gather(group, in, out, COUNT, CTRUN_F32, 0, NULL, err);
    case CALL_SCATTER:
        return ctrun_scatter(group, in, out, COUNT, CTRUN_F32, source, NULL, err);
    case CALL_RING:
    case CALL_KINDS: break;
    }
    return pass_on(group, err);
}
