/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/facts.h"
#include "agent/worker/worker_private.h"

void worker_find_role(struct ct_role_at *out, const struct worker *worker,
                      const struct ct_join *join, const struct ct_start *start)
{
    ct_role_find(out, &join->roles, join->role, start, (uint32_t)worker->local_rank);
}

void worker_add_role(struct ct_failure *failure, const struct worker *worker,
                     const struct ct_join *join, const struct ct_start *start)
{
    struct ct_role_at role;

    if (join->roles.count == 0)
        return;
    worker_find_role(&role, worker, join, start);
    facts_add(failure, CT_FACT_ROLE, "%s, rank %u of %u", role.name, role.rank,
              role.world_size);
}

/* If the node has several roles. */
void worker_emit_role(struct ct_event *event, const struct worker *worker,
                      const struct worker_place *place)
{
    struct ct_role_at role;

    if (place->join->roles.count == 0)
        return;
    worker_find_role(&role, worker, place->join, place->start);
    ct_event_str(event, "role", role.name);
    ct_event_int(event, "role_rank", role.rank);
}
