/* SPDX-License-Identifier: Apache-2.0 */
/* Which network the nodes of a world get, and which nodes each of them must reach on it. */
#include "rendezvous/round/networks.h"

#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

enum {
    WORLD_MAX = 64
};

static struct member members[WORLD_MAX];
static struct member *world[WORLD_MAX];
static struct ct_start start; /* of all nodes */

/* Nodes 1, 2, ... with three addresses: 10.77.0.n, from which they reach the server, 10.78.0.n and
 * docker0. */
static void set_world(size_t count)
{
    memset(members, 0, sizeof members);
    for (size_t i = 0; i < count; i++) {
        struct ct_join *join = &members[i].join;
        const int n = (int)i + 1;

        world[i] = &members[i];
        join->store_port = (uint16_t)(1000 + n);
        join->addr_count = 3;
        snprintf(join->addrs[0], sizeof join->addrs[0], "172.17.0.1");
        snprintf(join->addrs[1], sizeof join->addrs[1], "10.78.0.%d", n);
        snprintf(join->addrs[2], sizeof join->addrs[2], "10.77.0.%d", n);
        snprintf(members[i].link.host, sizeof members[i].link.host, "n%d", n);
        snprintf(members[i].link.seen_as, CT_ADDR_TEXT_MAX, "10.77.0.%d", n);
        snprintf(members[i].link.reached_at, CT_ADDR_TEXT_MAX, "10.77.0.99");
    }
}

TEST(the_next_network_is_told_when_one_is_cut)
{
    struct networks networks = {0};
    const struct member_start *own = &members[2].start;

    set_world(3);
    networks_choose(&networks, &start, world, 3);
    assert_string_equal(start.master_addr, "10.77.0.1");
    assert_int_equal(start.reach, CT_REACH_PROVE);
    assert_int_equal(own->peer_count, 1);
    assert_string_equal(own->peers[0].addr, "10.77.0.2");
    assert_string_equal(own->peers[0].host, "n2");
    assert_int_equal(own->peers[0].port, 1002);
    assert_int_equal(members[0].start.peer_count, 0);
    assert_true(networks_cut(&networks, "10.77.0.1"));
    assert_false(networks_cut(&networks, "10.77.0.1"));
    networks_choose(&networks, &start, world, 3);
    assert_string_equal(start.master_addr, "10.78.0.1");
    assert_int_equal(start.reach, CT_REACH_PROVE);
    assert_string_equal(own->peers[0].addr, "10.78.0.2");
}

TEST(another_first_node_does_not_use_the_cut_network_either)
{
    struct networks networks = {0};

    set_world(3);
    assert_true(networks_cut(&networks, "10.77.0.1"));
    networks_choose(&networks, &start, world + 1, 2);
    assert_string_equal(start.master_addr, "10.78.0.2");
}

TEST(when_all_are_cut_the_first_is_told_and_nothing_to_prove)
{
    struct networks networks = {0};

    set_world(3);
    assert_true(networks_cut(&networks, "10.77.0.1"));
    assert_true(networks_cut(&networks, "10.78.0.1"));
    networks_choose(&networks, &start, world, 3);
    assert_string_equal(start.master_addr, "10.77.0.1");
    assert_int_equal(start.reach, CT_REACH_NONE_REACHES_ALL);
    assert_int_equal(members[1].start.peer_count, 0);
    assert_true(networks_cut(&networks, "a"));
    assert_true(networks_cut(&networks, "b"));
    assert_false(networks_cut(&networks, "c"));
}

TEST(without_a_choice_there_is_nothing_to_prove)
{
    const struct networks networks = {0};

    set_world(3);
    /* Its user has set this address. */
    (void)ct_copy(members[0].join.local_addr, sizeof members[0].join.local_addr,
                  "10.78.0.1");
    networks_choose(&networks, &start, world, 3);
    members[0].join.addr_count = 1; /* only docker0, which all nodes have */
    networks_choose(&networks, &start, world, 3);
    assert_string_equal(start.master_addr, "10.78.0.1");
    assert_int_equal(start.reach, CT_REACH_FREE);
    set_world(3);
    members[0].join.addr_count = 1;
    networks_choose(&networks, &start, world, 3);
    assert_int_equal(start.reach, CT_REACH_FREE);
    set_world(1);
    networks_choose(&networks, &start, world, 1);
    assert_int_equal(start.reach, CT_REACH_FREE);
}

TEST(a_network_that_was_typed_stays_and_the_sample_is_tried_on_it)
{
    struct networks networks = {0};
    struct ct_join *first = &members[0].join;

    set_world(3);
    assert_true(networks_cut(&networks, "10.78.0.1"));
    (void)ct_copy(first->local_addr, sizeof first->local_addr, "10.78.0.1");
    networks_choose(&networks, &start, world, 3);
    assert_string_equal(start.master_addr, "10.78.0.1");
    assert_int_equal(start.reach, CT_REACH_WARN);
    assert_string_equal(members[2].start.peers[0].addr, "10.78.0.2");
    (void)ct_copy(first->local_addr, sizeof first->local_addr, "n1"); /* static */
    (void)ct_copy(members[1].link.reached_at, CT_ADDR_TEXT_MAX, "10.77.0.1");
    networks_choose(&networks, &start, world, 3);
    assert_string_equal(start.master_addr, "n1");
    assert_int_equal(start.reach, CT_REACH_WARN);
    assert_string_equal(members[2].start.peers[0].addr, "10.77.0.2");
    (void)ct_copy(first->local_addr, sizeof first->local_addr, "127.0.0.1");
    networks_choose(&networks, &start, world, 3);
    assert_int_equal(start.reach, CT_REACH_FREE);
}

/* By group rank: true if node i must reach node k. */
static bool reaches(int i, int k)
{
    char addr[CT_ADDR_TEXT_MAX];

    snprintf(addr, sizeof addr, "10.77.0.%d", k + 1);
    for (int p = 0; p < members[i].start.peer_count; p++)
        if (strcmp(members[i].start.peers[p].addr, addr) == 0)
            return true;
    return false;
}

TEST(all_pairs_are_proven_up_to_eight_nodes_and_four_a_node_above)
{
    const struct networks networks = {0};

    for (int count = 2; count <= WORLD_MAX; count++) {
        set_world((size_t)count);
        networks_choose(&networks, &start, world, (size_t)count);
        for (int i = 1; i < count; i++) {
            assert_false(reaches(i, i));
            assert_false(reaches(i, 0));
            if (count > 8)
                assert_int_equal(members[i].start.peer_count, CT_START_PEERS_MAX);
            for (int k = 1; count <= 8 && k < i; k++)
                assert_true(reaches(i, k) || reaches(k, i));
        }
    }
}

TEST(what_takes_the_place_of_master_is_beside_it)
{
    char addr[CT_HOST_MAX];

    set_world(3);
    networks_choose_beside(addr, "10.78.0.1", world + 1, 2);
    assert_string_equal(addr, "10.78.0.2");
    networks_choose_beside(addr, "head", world + 1, 2); /* its address for the server */
    assert_string_equal(addr, "10.77.0.2");
    (void)ct_copy(members[1].join.local_addr, sizeof members[1].join.local_addr, "h2");
    networks_choose_beside(addr, "10.78.0.1", world + 1, 2);
    assert_string_equal(addr, "h2");
}
