/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/role.h"

#include <string.h>

bool ct_role_list_is_sound(const struct ct_role_list *roles, uint32_t slots)
{
    uint64_t sum = 0;

    for (int i = 0; i < roles->count; i++) {
        const struct ct_role *role = &roles->list[i];

        if (!*role->name || role->slots == 0)
            return false;
        for (int j = 0; j < i; j++)
            if (strcmp(roles->list[j].name, role->name) == 0)
                return false;
        sum += role->slots;
    }
    return roles->count == 0 || sum == slots;
}

void ct_role_find(struct ct_role_at *out, const struct ct_role_list *roles,
                  const char *sole, const struct ct_start *start, uint32_t local_rank)
{
    const struct ct_role *role = roles->list;
    uint32_t first = 0;

    *out = (struct ct_role_at){.name = sole,
                               .rank = start->role_rank_base + local_rank,
                               .world_size = start->role_world_size};
    if (roles->count == 0)
        return;
    while (local_rank - first >= role->slots && role + 1 < roles->list + roles->count)
        first += role++->slots;
    out->number = (int)(role - roles->list);
    out->name = role->name;
    out->first = first;
    out->rank = start->roles[out->number].rank_base + local_rank - first;
    out->world_size = start->roles[out->number].world_size;
}
