/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/small.h"

#include <string.h>

#include "worker_sdk/comm/host/reduce.h"

/* In the agreement of ALL_TO_ALL_V, `out` is the sum of all members' parts, 0 before. */
static void add_parts(const struct ct_call *call, const void *data)
{
    uint64_t parts;

    memcpy(&parts, data, sizeof parts);
    *(uint64_t *)call->out += parts;
}

void ct_small_finish(const struct ct_call *call, int size, int me, const void **parts)
{
    const struct ct_reduction how = {call->dtype, call->op, call->divisor};

    for (int i = 0; call->kind == CT_CALL_REDUCE_SCATTER && i < size; i++)
        parts[i] = (const unsigned char *)parts[i] + (size_t)me * call->bytes;
    if (ct_call_is_reduction(call) &&
        (call->kind != CT_CALL_REDUCE || call->peer == me))
        ct_reduce(&how, &call->out, 1, parts, size, call->count);
    if (call->kind == CT_CALL_BROADCAST && call->bytes)
        memcpy(call->out, parts[call->peer], call->bytes);
    for (int i = 0; ct_call_is_all_gather(call) && call->bytes && i < size; i++)
        memcpy((unsigned char *)call->out + (size_t)i * call->bytes, parts[i],
               call->bytes);
    for (int i = 0; call->kind == CT_CALL_ALL_TO_ALL_V && call->bytes && i < size; i++)
        add_parts(call, parts[i]);
}
