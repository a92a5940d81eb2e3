/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/master.h"

#include "worker_sdk/base/str.h"

static bool is_loopback(const char *text)
{
    struct ct_addr addr;

    return ct_addr_parse(text, 0, &addr) == 0 && ct_addr_is_loopback(&addr);
}

/* A connection from the server's own host: over loopback, or to and from one address. */
static bool is_beside_server(const struct member *member)
{
    return is_loopback(member->link.seen_as) ||
           strcmp(member->link.seen_as, member->link.reached_at) == 0;
}

/* The address alone is not enough: nodes behind one NAT share an address, so names are compared
 * too. */
static bool is_same_host(const struct member *a, const struct member *b)
{
    if (is_beside_server(a) || is_beside_server(b))
        return is_beside_server(a) && is_beside_server(b);
    return strcmp(a->link.seen_as, b->link.seen_as) == 0 &&
           strcmp(a->link.host, b->link.host) == 0;
}

static bool is_one_host(struct member *const *world, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (!is_same_host(world[0], world[i]))
            return false;
    }
    return true;
}

static const char *find_dialled_address(struct member *const *world, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_loopback(world[i]->link.seen_as))
            return world[i]->link.reached_at;
    }
    return "127.0.0.1";
}

void master_choose(char *dst, struct member *const *world, size_t count)
{
    const struct member *first = world[0];
    const char *choice;

    if (first->join.local_addr[0])
        choice = first->join.local_addr;
    else if (is_one_host(world, count))
        choice = "127.0.0.1";
    else if (!is_loopback(first->link.seen_as))
        choice = first->link.seen_as;
    else
        choice = find_dialled_address(world, count);
    (void)ct_copy(dst, CT_HOST_MAX,
                  choice); /* all of them are shorter than a host name */
}

bool master_is_common(const char *master, const struct member *a,
                      const struct member *b)
{
    return !is_loopback(master) || is_same_host(a, b);
}
