/* SPDX-License-Identifier: Apache-2.0 */
/* Describes calls in messages. */
#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/backend/backend.h"

enum {
    SIDE_TEXT_MAX = CT_CALL_TEXT_MAX + 40
};

const char *ct_call_name(enum ct_call_kind kind)
{
    switch (kind) {
    case CT_CALL_ALL_REDUCE: return "all_reduce";
    case CT_CALL_REDUCE: return "reduce";
    case CT_CALL_BROADCAST: return "broadcast";
    case CT_CALL_ALL_GATHER: return "all_gather";
    case CT_CALL_REDUCE_SCATTER: return "reduce_scatter";
    case CT_CALL_ALL_TO_ALL: return "all_to_all";
    case CT_CALL_ALL_TO_ALL_V: return "all_to_all_v";
    case CT_CALL_ALL_GATHER_V: return "all_gather_v";
    case CT_CALL_GATHER: return "gather";
    case CT_CALL_SCATTER: return "scatter";
    case CT_CALL_BARRIER: return "barrier";
    case CT_CALL_SPLIT: return "split";
    case CT_CALL_SEND: return "send";
    case CT_CALL_RECV: return "recv";
    case CT_CALL_BATCH: return "batch";
    case CT_CALL_COPY: return "copy";
    case CT_CALL_CLEAR: return "clear";
    case CT_CALL_COMPUTE: return "compute";
    case CT_CALL_ALLOC: return "group alloc";
    }
    return "unknown call"; /* a value from another process */
}

void ct_call_format(char *dst, const struct ct_call *call)
{
    static const char *const ops[] = {"SUM", "AVG", "MIN", "MAX", "PROD"};
    const char *dtype = call->kind == CT_CALL_ALLOC ? "bytes"
                                                    : ct_dtype_name((int)call->dtype);
    const char *op = (unsigned)call->op < 5 ? ops[call->op] : "?";
    const char *name = ct_call_name(call->kind);
    bool reduces = ct_call_is_reduction(call);
    int n;

    if (call->kind == CT_CALL_BARRIER || call->kind == CT_CALL_SPLIT ||
        call->kind == CT_CALL_BATCH)
        n = ct_format(dst, CT_CALL_TEXT_MAX, "%s", name);
    else if (call->kind == CT_CALL_ALL_TO_ALL_V || call->kind == CT_CALL_ALL_GATHER_V)
        n = ct_format(dst, CT_CALL_TEXT_MAX, "%s of %s", name, dtype);
    else
        n = ct_format(dst, CT_CALL_TEXT_MAX, "%s of %zu %s%s%s", name, call->count,
                      dtype, reduces ? ", " : "", reduces ? op : "");
    if (n < 0)
        return; /* never: dst has room for every call */
    if (call->kind == CT_CALL_BROADCAST || call->kind == CT_CALL_SCATTER)
        (void)ct_format(dst + n, CT_CALL_TEXT_MAX - (size_t)n, " from member %d",
                        call->peer);
    if (call->kind == CT_CALL_REDUCE || call->kind == CT_CALL_GATHER)
        (void)ct_format(dst + n, CT_CALL_TEXT_MAX - (size_t)n, " to member %d",
                        call->peer);
}

const char *ct_call_difference(const struct ct_call *a, const struct ct_call *b)
{
    if (a->pass != b->pass)
        return " after a different number of backward passes of DDP: all ranks must "
               "pass the same value to ctrun_ddp_no_sync()";
    /* In the agreement `count` is the hash of all counts. */
    return a->kind == CT_CALL_ALL_GATHER_V && b->kind == a->kind && a->count != b->count
               ? " with other counts: all ranks must pass the same out_parts"
               : "";
}

/* A message has no number; `other` is the rank of its other end. The number of a collective of
 * another rank may be unknown: 0. */
static void format_side(char *dst, const struct ct_call *call, int other)
{
    char text[CT_CALL_TEXT_MAX];

    ct_call_format(text, call);
    if (ct_call_is_p2p(call))
        (void)ct_format(dst, SIDE_TEXT_MAX, "%s %s rank %d", text,
                        call->kind == CT_CALL_SEND ? "to" : "from", other);
    else if (call->number == 0)
        (void)ct_copy(dst, SIDE_TEXT_MAX, text);
    else
        (void)ct_format(dst, SIDE_TEXT_MAX, "%s (collective %llu)", text,
                        (unsigned long long)call->number);
}

int ct_call_fail_mismatch(const struct ct_call *call, int me,
                          const struct ct_call *other, int peer,
                          struct ctrun_error *err)
{
    char a[SIDE_TEXT_MAX];
    char b[SIDE_TEXT_MAX];

    format_side(a, call, peer);
    format_side(b, other, me);
    return ct_fail(err, CTRUN_E_MISMATCH, "rank %d calls %s, rank %d calls %s%s", me, a,
                   peer, b, ct_call_difference(call, other));
}
