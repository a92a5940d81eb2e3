/* SPDX-License-Identifier: Apache-2.0 */
/* How large worlds are: limits and units. */
#include "rendezvous/round/round_private.h"

size_t round_world_size(const struct round *round, size_t ready)
{
    const struct round_settings *settings = &round->settings;
    size_t size = ready < settings->max_nodes ? ready : settings->max_nodes;

    if (settings->node_unit > 1)
        size -= size % settings->node_unit;
    return size < settings->min_nodes ? 0 : size;
}

bool round_has_wrong_size(const struct round *round)
{
    const size_t in_world = round->counts[MEMBER_RUNNING] +
                            round->counts[MEMBER_SUCCEEDED];
    const size_t possible = round_world_size(round,
                                             in_world + round->counts[MEMBER_READY]);

    return possible > round->world_count ||
           round->world_count > round->settings.max_nodes;
}
