/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/heirs.h"

#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/wire/takeover.h"

void heirs_clear(struct heirs *heirs)
{
    free(heirs->list);
    *heirs = (struct heirs){0};
}

static bool begin(struct heirs *heirs, const struct ct_roster *roster)
{
    heirs_clear(heirs);
    if (roster->total == 0 || roster->total > CT_TAKEOVER_NODES_MAX ||
        roster->leader >= roster->total)
        return false;
    if (!(heirs->list = ct_realloc_array(NULL, roster->total, sizeof *heirs->list)))
        return false;
    heirs->generation = roster->generation;
    heirs->min_nodes = roster->min_nodes;
    heirs->count = heirs->self = roster->total;
    heirs->leader = roster->leader;
    return true;
}

void heirs_take(struct heirs *heirs, const struct ct_roster *roster, uint64_t own_key)
{
    if (roster->first == 0 && !begin(heirs, roster))
        return;
    if (roster->generation != heirs->generation || roster->total != heirs->count ||
        roster->first != heirs->taken || roster->count > heirs->count - heirs->taken) {
        heirs_clear(heirs);
        return;
    }
    for (size_t i = 0; i < roster->count; i++, heirs->taken++) {
        heirs->list[heirs->taken] = roster->nodes[i];
        if (roster->nodes[i].key == own_key)
            heirs->self = heirs->taken;
    }
}

bool heirs_are_known(const struct heirs *heirs)
{
    return heirs->count > 0 && heirs->taken == heirs->count &&
           heirs->self < heirs->count;
}

size_t heirs_find_addrs(const struct heirs *heirs, size_t i, struct ct_addr *out,
                        size_t max)
{
    const struct ct_roster_node *node = &heirs->list[i];
    size_t count = 0;

    for (size_t n = 0; n < node->addr_count && count < max; n++)
        count += ct_addr_parse(node->addrs[n], node->port, &out[count]) == 0;
    return count;
}

bool heirs_is_candidate(const struct heirs *heirs, size_t i)
{
    return i != heirs->leader && heirs->list[i].port != 0 &&
           heirs->list[i].addr_count > 0;
}
