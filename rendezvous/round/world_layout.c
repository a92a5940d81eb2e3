/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/world_layout.h"

#include "worker_sdk/base/str.h"

/* "node2, node5 and 3 more": nodes whose program is known and differs from that of the first
 * node. */
static void describe_unlike(char *dst, size_t size, struct member **world, size_t count)
{
    const struct member *first = world[0];
    const char *last = "";
    size_t more = 0;

    dst[0] = '\0';
    for (size_t i = 1; i < count && first->join.program; i++) {
        const struct member *member = world[i];
        const char *host = member->link.host;

        if (!member->join.program || member->join.program == first->join.program ||
            strcmp(member->join.role, first->join.role) != 0 || /* another role */
            strcmp(host, last) == 0) /* several agents of one host */
            continue;
        last = host;
        if (more || strlen(dst) + strlen(host) + sizeof ",  and 65535 more" > size)
            more++;
        else
            (void)ct_append_item(dst, size, ", ", "%s", host);
    }
    if (more)
        (void)ct_append(dst, size, " and %zu more", more);
}

void world_layout_describe(struct ct_start *start, struct member **world, size_t count)
{
    struct ct_layout layout = {0};
    bool knows_gloo_scale = true;

    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        ct_layout_add(&layout, world[i]->join.slots);
        knows_gloo_scale = knows_gloo_scale && world[i]->join.knows_gloo_scale;
    }
    (void)ct_layout_end(&layout);
    memcpy(start->layout, layout.text, sizeof layout.text);
    start->uses_gloo_scale = knows_gloo_scale;
    describe_unlike(start->unlike, sizeof start->unlike, world, count);
}
