/* SPDX-License-Identifier: Apache-2.0 */
/* --role-restarts: whether a worker that has failed is started again alone. Counted for each role
 * over its workers of this node, from zero in every round. A zeroed one is empty. Pure. */
#pragma once

#include "rendezvous/round/crash_loop.h"
#include "worker_sdk/wire/message.h"

enum role_restarts_answer {
    ROLE_RESTARTS_GO,
    ROLE_RESTARTS_USED_UP,
    ROLE_RESTARTS_CRASH_LOOP, /* the same worker has failed twice alike, right after its start */
};

struct role_restarts {
    uint32_t used[CT_ROLES_MAX];
    struct crash_loop *last; /* by local rank; owned; NULL: none has failed */
    int workers;
};

struct role_restarts_request {
    const struct ct_failure *failure;
    uint32_t limit; /* of its role */
    int role;       /* number in the node's list */
    int local_rank;
    int workers; /* of this node, always the same */
};

void role_restarts_begin_round(struct role_restarts *restarts);
/* GO counts. The rule against crash loops is that of the job's restarts: only where the limit is
 * above CRASH_LOOP_FEW_RESTARTS. Without memory that rule does not hold. */
enum role_restarts_answer
role_restarts_ask(struct role_restarts *restarts,
                  const struct role_restarts_request *request);
void role_restarts_deinit(struct role_restarts *restarts);
