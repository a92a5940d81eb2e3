/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/round/networks.h"

#include "rendezvous/round/master.h"
#include "worker_sdk/base/str.h"

enum {
    CANDIDATES_MAX = CT_MESSAGE_ADDRS_MAX + 1
};

bool networks_cut(struct networks *networks, const char *master)
{
    for (uint8_t i = 0; i < networks->cut_count; i++)
        if (strcmp(networks->cut[i], master) == 0)
            return false;
    return networks->cut_count < NETWORKS_CUT_MAX &&
           ct_copy(networks->cut[networks->cut_count++], CT_ADDR_TEXT_MAX, master) >= 0;
}

/* ---- Addresses --------------------------------------------------------------------------- */

/* False: a name, or an address that another host cannot use. */
static bool parse(struct ct_addr *out, const char *text)
{
    char host[CT_ADDR_TEXT_MAX];

    (void)ct_format(host, sizeof host, "%.*s", (int)strcspn(text, "%"), text);
    return ct_addr_parse(host, 0, out) == 0 && !ct_addr_is_loopback(out);
}

/* -1: one address is v4, the other v6. */
static int count_shared_bits(const struct ct_addr *a, const struct ct_addr *b)
{
    uint8_t left[16], right[16];
    int bits = 0;

    if (a->any.sa_family != b->any.sa_family)
        return -1;
    ct_addr_key(left, a);
    ct_addr_key(right, b);
    while (bits < 128 && ((left[bits / 8] ^ right[bits / 8]) & (0x80 >> bits % 8)) == 0)
        bits++;
    return bits;
}

/* The node's address that shares most leading bits with `addr`. NULL: it has reported none of that
 * family. */
static const char *find_beside(const struct member *member, const struct ct_addr *addr)
{
    const char *best = NULL;
    int most = -1;

    for (int i = 0; i < member->join.addr_count; i++) {
        struct ct_addr own;
        const int bits = parse(&own, member->join.addrs[i])
                             ? count_shared_bits(&own, addr)
                             : -1;

        if (bits > most) {
            most = bits;
            best = member->join.addrs[i];
        }
    }
    return best;
}

static bool has_address(const struct member *member, const char *text)
{
    for (int i = 0; i < member->join.addr_count; i++)
        if (strcmp(member->join.addrs[i], text) == 0)
            return true;
    return false;
}

/* True if another node has the same address: docker0's is the same on every node, and reaches only
 * the own host. */
static bool is_of_many(const char *text, struct member *const *world, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (has_address(world[i], text))
            return true;
    return false;
}

/* ---- The choice -------------------------------------------------------------------------- */

/* An earlier round may have had another first node: its address is cut, and so is this node's
 * address in that network. */
static bool is_cut(const struct networks *networks, const struct member *first,
                   const char *candidate)
{
    for (uint8_t i = 0; i < networks->cut_count; i++) {
        struct ct_addr cut;
        const char *beside = parse(&cut, networks->cut[i]) ? find_beside(first, &cut)
                                                           : NULL;

        if (strcmp(networks->cut[i], candidate) == 0 ||
            (beside && !has_address(first, networks->cut[i]) &&
             strcmp(beside, candidate) == 0))
            return true;
    }
    return false;
}

/* The address whose network all nodes use: `master`, or, if this is a name, the address at which
 * another node reached the server: only the static backend takes a name, and it is the server's. */
static const char *find_network(const char *master, struct member *const *world,
                                size_t count)
{
    struct ct_addr addr;

    return count > 1 && ct_addr_parse(master, 0, &addr) < 0 ? world[1]->link.reached_at
                                                            : master;
}

/* `master`, then the first node's other addresses at which the others may reach it. */
static int list_candidates(const char **out, const char *master,
                           struct member *const *world, size_t count)
{
    const struct ct_join *join = &world[0]->join;
    struct ct_addr addr;
    int n = 0;

    if (count < 2 || !parse(&addr, master))
        return 0;
    out[n++] = master;
    for (int i = 0; i < join->addr_count; i++)
        if (strcmp(join->addrs[i], master) != 0 && parse(&addr, join->addrs[i]) &&
            !ct_addr_is_link_local(&addr) && !is_of_many(join->addrs[i], world, count))
            out[n++] = join->addrs[i];
    return n;
}

static enum ct_reach choose(const struct networks *networks, char *master,
                            struct member *const *world, size_t count)
{
    const char *candidates[CANDIDATES_MAX];
    char choice[CT_HOST_MAX];
    int n;

    master_choose(master, world, count);
    n = list_candidates(candidates, find_network(master, world, count), world, count);
    if (world[0]->join.local_addr[0])
        return n > 1 ? CT_REACH_WARN : CT_REACH_FREE;
    for (int i = 0; n > 1 && i < n; i++) {
        if (is_cut(networks, world[0], candidates[i]))
            continue;
        (void)ct_copy(choice, sizeof choice, candidates[i]); /* shorter */
        memcpy(master, choice, sizeof choice);
        return CT_REACH_PROVE;
    }
    return n > 1 ? CT_REACH_NONE_REACHES_ALL : CT_REACH_FREE;
}

/* ---- The sample -------------------------------------------------------------------------- */

static void add_peer(struct member_start *start, const struct member *peer,
                     const struct ct_addr *master)
{
    const char *beside = find_beside(peer, master);
    struct ct_addr addr;
    struct ct_start_peer *out = &start->peers[start->peer_count];

    if (!beside)
        beside = peer->link.seen_as;
    if (!parse(&addr, beside))
        return;
    (void)ct_format(out->host, sizeof out->host, "%s",
                    peer->link.host);                   /* cut is fine */
    (void)ct_copy(out->addr, sizeof out->addr, beside); /* same size */
    out->port = peer->join.store_port;
    start->peer_count++;
}

/* Each node proves anyhow that it reaches the first node. The others form a ring: a node gets the
 * next three as peers and the one across; a proof holds in both directions. */
static void add_peers(struct member **world, size_t count, size_t self,
                      const struct ct_addr *master)
{
    const size_t ring = count - 1;
    const size_t steps[CT_START_PEERS_MAX] = {1, 2, 3, ring / 2};

    for (size_t i = 0; i < CT_START_PEERS_MAX; i++) {
        bool is_new = steps[i] % ring != 0;

        for (size_t k = 0; k < i; k++)
            is_new &= steps[k] % ring != steps[i] % ring;
        if (is_new)
            add_peer(&world[self]->start, world[1 + (self - 1 + steps[i]) % ring],
                     master);
    }
}

void networks_choose(const struct networks *networks, struct ct_start *start,
                     struct member **world, size_t count)
{
    struct ct_addr addr;
    bool has_peers;

    start->reach = (uint8_t)choose(networks, start->master_addr, world, count);
    has_peers = (start->reach == CT_REACH_PROVE || start->reach == CT_REACH_WARN) &&
                parse(&addr, find_network(start->master_addr, world, count));
    for (size_t i = 0; i < count; i++) {
        world[i]->start.peer_count = 0;
        if (has_peers && i > 0)
            add_peers(world, count, i, &addr);
    }
}

void networks_choose_beside(char dst[CT_HOST_MAX], const char *master,
                            struct member *const *world, size_t count)
{
    const char *beside = NULL;
    struct ct_addr addr;

    master_choose(dst, world, count);
    if (!world[0]->join.local_addr[0] && parse(&addr, master))
        beside = find_beside(world[0], &addr);
    if (!beside && !world[0]->join.local_addr[0] && parse(&addr, master) &&
        parse(&addr, world[0]->link.seen_as))
        beside = world[0]->link.seen_as; /* at least this one is known */
    if (beside)
        (void)ct_copy(dst, CT_HOST_MAX, beside); /* shorter */
}
