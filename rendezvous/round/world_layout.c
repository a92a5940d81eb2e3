/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/world_layout.h"

#include <stddef.h>

#include "worker_sdk/base/str.h"

enum {
    NAMED_MAX = 3, /* hosts of each version */
    VERSIONS_MAX = 4,
    VERSIONS_MAX_BYTES = 256
};

/* One version of each node: a text of its JOIN. */
struct versions {
    struct member **world;
    size_t count;
    size_t field; /* where it is in JOIN */
};

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

/* Empty: not known, or of another role than the first node's, whose ranks may need another one. */
static const char *version_of(const struct versions *all, size_t at)
{
    const struct ct_join *join = &all->world[at]->join;

    return strcmp(join->role, all->world[0]->join.role) == 0
               ? (const char *)join + all->field
               : "";
}

static bool is_same(const struct versions *all, size_t a, size_t b)
{
    return strcmp(version_of(all, a), version_of(all, b)) == 0;
}

static bool is_first(const struct versions *all, size_t at)
{
    size_t i = 0;

    while (!is_same(all, i, at))
        i++;
    return i == at;
}

/* "node1, node2, node3 and 61 more": from the first one on. */
static void name_like(char *dst, size_t size, const struct versions *all, size_t first)
{
    const char *last = "";
    size_t named = 0, more = 0;

    for (size_t i = first; i < all->count; i++) {
        const char *host = all->world[i]->link.host;

        if (!is_same(all, i, first) || strcmp(host, last) == 0)
            continue; /* several agents of one host */
        last = host;
        if (named < NAMED_MAX)
            (void)ct_append(dst, size, "%s%s", named++ > 0 ? ", " : "", host);
        else
            more++;
    }
    if (more > 0)
        (void)ct_append(dst, size, " and %zu more", more);
}

/* "PyTorch 2.6 on node1, but 2.4 on node3"; nothing where all that are known are equal. */
static void describe_versions(char *dst, size_t size, const struct versions *all,
                              const char *name)
{
    char text[VERSIONS_MAX_BYTES] = "";
    int versions = 0;

    for (size_t i = 0; i < all->count && versions < VERSIONS_MAX; i++) {
        if (!*version_of(all, i) || !is_first(all, i))
            continue;
        (void)ct_append(text, sizeof text, "%s%s on ", versions++ > 0 ? ", but " : "",
                        version_of(all, i));
        name_like(text, sizeof text, all, i);
    }
    if (versions > 1)
        (void)ct_append_item(dst, size, "; ", "%s %s", name, text); /* cut is fine */
}

static void describe_all_versions(char *dst, size_t size, struct member **world,
                                  size_t count)
{
    const struct versions torch = {world, count, offsetof(struct ct_join, torch)};
    const struct versions driver = {world, count, offsetof(struct ct_join, driver)};

    *dst = '\0';
    describe_versions(dst, size, &torch, "PyTorch");
    describe_versions(dst, size, &driver, "NVIDIA's driver");
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
    describe_all_versions(start->versions, sizeof start->versions, world, count);
}
