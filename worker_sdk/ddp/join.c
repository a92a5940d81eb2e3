/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/join.h"

#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"

int ct_join_begin(struct ct_join *join, const struct ctrun_group *group,
                  const struct ctrun_join_options *options, struct ctrun_error *err)
{
    int rc;

    *join = (struct ct_join){.options = CTRUN_JOIN_OPTIONS_INIT,
                             .ranks = ctrun_group_size(group),
                             .rank = ctrun_group_rank(group),
                             .last = ctrun_group_size(group) - 1};
    if (options && (rc = ct_sized_read(&join->options, sizeof join->options, options,
                                       "CTRUN_JOIN_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "ddp: join options"), rc;
    if (!(join->turns = ct_zalloc((size_t)join->ranks)))
        return ct_fail(err, -ENOMEM, "ddp: join: out of memory");
    join->is_on = true;
    return 0;
}

void ct_join_end(struct ct_join *join)
{
    free(join->turns);
    *join = (struct ct_join){.is_on = false};
}

static int find_turn(const struct ct_join *join, enum ct_turn turn)
{
    int r = 0;

    while (r < join->ranks && join->turns[r] != turn)
        r++;
    return r;
}

static int fail_early(const struct ct_join *join, struct ctrun_error *err)
{
    if (join->turns[join->rank] == CT_TURN_JOINED)
        return ct_fail(err, CTRUN_E_MISMATCH, "Rank %d exhausted all inputs.",
                       join->rank);
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "Detected at least one rank that exhausted inputs. Throwing across "
                   "all ranks. The first is rank %d.",
                   find_turn(join, CT_TURN_JOINED));
}

int ct_join_announce(struct ct_join *join, struct ctrun_group *group, enum ct_turn mine,
                     struct ctrun_error *err)
{
    const uint8_t turn = (uint8_t)mine;
    int rc = ctrun_all_gather(group, &turn, join->turns, 1, CTRUN_U8, NULL, err);
    int counts[CT_TURNS] = {0};

    if (rc < 0)
        return rc;
    for (int r = 0; r < join->ranks; r++)
        counts[join->turns[r] % CT_TURNS]++;
    join->active = join->ranks - counts[CT_TURN_JOINED];
    if (join->active == 0)
        return 0;
    for (int r = 0; r < join->ranks; r++)
        if (join->turns[r] != CT_TURN_JOINED)
            join->last = r;
    join->is_sync = counts[CT_TURN_SYNC] > 0;
    if (join->options.fail_early && counts[CT_TURN_JOINED])
        return fail_early(join, err);
    return counts[CT_TURN_SYNC] && counts[CT_TURN_LOCAL]
               ? ct_fail(err, CTRUN_E_MISMATCH,
                         "ddp: join: rank %d synchronises in this step, rank %d is "
                         "under ctrun_ddp_no_sync()",
                         find_turn(join, CT_TURN_SYNC), find_turn(join, CT_TURN_LOCAL))
               : 0;
}
