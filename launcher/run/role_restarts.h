/* SPDX-License-Identifier: Apache-2.0 */
/* --role-restarts: decides whether a failed worker is restarted alone. The restarts are counted
 * for each role over its workers on this node, from zero in every round. A zeroed struct is
 * empty. Pure. */
#pragma once

#include "rendezvous/round/crash_loop.h"
#include "worker_sdk/wire/message.h"

enum role_restarts_answer {
    ROLE_RESTARTS_GO,
    ROLE_RESTARTS_USED_UP,
    ROLE_RESTARTS_CRASH_LOOP, /* a worker failed twice in the same way, soon after its start */
};

struct role_restarts {
    uint32_t used[CT_ROLES_MAX];
    struct crash_loop *last; /* by local rank; owned; NULL: no worker has failed */
    int workers;
};

struct role_restarts_request {
    const struct ct_failure *failure;
    uint32_t limit; /* of its role */
    int role;       /* index in the node's list of roles */
    int local_rank;
    int workers; /* of this node, always the same */
};

void role_restarts_begin_round(struct role_restarts *restarts);
/* ROLE_RESTARTS_GO is counted. Crash loops are detected as for restarts of all workers: only if the
 * limit is above CRASH_LOOP_FEW_RESTARTS. When memory is short they are not detected. */
enum role_restarts_answer
role_restarts_ask(struct role_restarts *restarts,
                  const struct role_restarts_request *request);
void role_restarts_deinit(struct role_restarts *restarts);
