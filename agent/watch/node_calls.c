/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/node_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

/* State while the calls of one group are read. */
struct pass {
    const struct straggler *given;
    int ranks;
    int *at;   /* for each rank, where its next call may be */
    int *last; /* how often each rank was the last */
    bool *is_member;
};

static struct node_calls_group *find_group(struct node_calls *calls, uint64_t group)
{
    for (int i = 0; i < calls->count; i++)
        if (calls->groups[i].group == group)
            return &calls->groups[i];
    if (calls->count == STRAGGLER_GROUPS_MAX)
        return NULL;
    calls->groups[calls->count] = (struct node_calls_group){.group = group};
    return &calls->groups[calls->count++];
}

static bool is_in(const struct straggler *given, int rank, uint64_t group)
{
    int count;
    const struct straggler_call *list = straggler_given(given, rank, &count);

    for (int i = 0; i < count; i++)
        if (list[i].group == group)
            return true;
    return false;
}

/* True when all members have made this call. */
static bool join(struct pass *pass, struct straggler_call *call)
{
    int last = -1;

    for (int r = 0; r < pass->ranks; r++) {
        int count, at = pass->at[r];
        const struct straggler_call *list = straggler_given(pass->given, r, &count);

        if (!pass->is_member[r])
            continue;
        while (at < count &&
               (list[at].group != call->group || list[at].number < call->number))
            at++;
        pass->at[r] = at;
        if (at == count || list[at].number != call->number)
            return false;
        if (last < 0 || list[at].entered_ns > call->entered_ns) {
            call->entered_ns = list[at].entered_ns;
            last = r;
        }
    }
    pass->last[last]++;
    return true;
}

static int by_time(const void *a, const void *b)
{
    const struct straggler_call *left = a, *right = b;

    return (left->entered_ns > right->entered_ns) -
           (left->entered_ns < right->entered_ns);
}

/* The calls of one group; rank `first` is in it. */
static int take_group(struct node_calls_group *told, struct pass *pass, int first,
                      struct straggler_call *out)
{
    int count, taken = 0;
    const struct straggler_call *list = straggler_given(pass->given, first, &count);

    for (int r = 0; r < pass->ranks; r++) {
        pass->at[r] = 0;
        pass->is_member[r] = is_in(pass->given, r, told->group);
    }
    for (int i = 0; i < count; i++) {
        struct straggler_call call = list[i];

        if (call.group != told->group || call.number <= told->last ||
            !join(pass, &call))
            continue;
        out[taken++] = call;
        told->last = call.number;
    }
    return taken;
}

/* Each group once, by the first rank that is in it. */
static int take_all(struct node_calls *calls, struct pass *pass,
                    struct straggler_call *room)
{
    bool is_done[STRAGGLER_GROUPS_MAX] = {false};
    int taken = 0;

    for (int r = 0; r < pass->ranks; r++) {
        int count;
        const struct straggler_call *list = straggler_given(pass->given, r, &count);

        for (int i = 0; i < count; i++) {
            struct node_calls_group *told = find_group(calls, list[i].group);

            if (!told || is_done[told - calls->groups])
                continue;
            is_done[told - calls->groups] = true;
            taken += take_group(told, pass, r, room + taken);
        }
    }
    return taken;
}

static int find_most(const struct pass *pass)
{
    int most = -1;

    for (int r = 0; r < pass->ranks; r++)
        if (pass->last[r] > (most < 0 ? 0 : pass->last[most]))
            most = r;
    return most;
}

int node_calls_take(struct node_calls *calls, const struct straggler *given,
                    struct straggler_call *out, int max)
{
    const int ranks = straggler_ranks(given);
    struct pass pass = {.given = given, .ranks = ranks};
    struct straggler_call *room;
    size_t most = 0;
    int taken = -ENOMEM, count;

    for (int r = 0; r < ranks; r++) {
        (void)straggler_given(given, r, &count);
        most += (size_t)count;
    }
    room = ct_zalloc_array(most + 1, sizeof *room);
    pass.at = ct_zalloc_array((size_t)ranks, sizeof *pass.at);
    pass.last = ct_zalloc_array((size_t)ranks, sizeof *pass.last);
    pass.is_member = ct_zalloc_array((size_t)ranks, sizeof *pass.is_member);
    if (room && pass.at && pass.last && pass.is_member) {
        taken = take_all(calls, &pass, room);
        qsort(room, (size_t)taken, sizeof *room, by_time);
        count = taken < max ? taken : max;
        memcpy(out, room + (taken - count), (size_t)count * sizeof *out);
        taken = count;
        calls->last_rank = find_most(&pass);
    }
    free(room);
    free(pass.at);
    free(pass.last);
    free(pass.is_member);
    return taken;
}
