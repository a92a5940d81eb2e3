/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/role_restarts.h"

#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

void role_restarts_begin_round(struct role_restarts *restarts)
{
    memset(restarts->used, 0, sizeof restarts->used);
    if (restarts->last)
        memset(restarts->last, 0, (size_t)restarts->workers * sizeof *restarts->last);
}

static bool is_crash_loop(struct role_restarts *restarts,
                          const struct role_restarts_request *request)
{
    if (!restarts->last) {
        restarts->workers = request->workers;
        restarts->last = ct_zalloc_array((size_t)request->workers,
                                         sizeof *restarts->last);
    }
    return restarts->last &&
           crash_loop_take(&restarts->last[request->local_rank], request->failure) &&
           request->limit > CRASH_LOOP_FEW_RESTARTS;
}

enum role_restarts_answer role_restarts_ask(struct role_restarts *restarts,
                                            const struct role_restarts_request *request)
{
    if (is_crash_loop(restarts, request))
        return ROLE_RESTARTS_CRASH_LOOP;
    if (restarts->used[request->role] >= request->limit)
        return ROLE_RESTARTS_USED_UP;
    restarts->used[request->role]++;
    return ROLE_RESTARTS_GO;
}

void role_restarts_deinit(struct role_restarts *restarts)
{
    free(restarts->last);
    *restarts = (struct role_restarts){0};
}
