/* SPDX-License-Identifier: Apache-2.0 */
/* What the first node is told about all nodes. */
#include "tests/lib/test.h"

#include "rendezvous/round/world_layout.h"
#include "worker_sdk/base/str.h"

enum {
    WORLD_MAX = 400
};

static struct member members[WORLD_MAX];
static struct member *world[WORLD_MAX];
static struct ct_start start;

static void set_world(size_t count)
{
    memset(members, 0, sizeof members);
    for (size_t i = 0; i < count; i++) {
        world[i] = &members[i];
        world[i]->join.slots = 8;
        world[i]->join.program = 1;
        (void)ct_format(world[i]->link.host, sizeof world[i]->link.host, "node%zu",
                        i + 1);
    }
}

TEST(workers_of_each_node_are_added_up)
{
    set_world(3);
    members[2].join.slots = 7;
    world_layout_describe(&start, world, 3);
    assert_string_equal(start.layout, "8+8+7");
    set_world(64);
    members[63].join.slots = 7;
    world_layout_describe(&start, world, 64);
    assert_string_equal(start.layout, "8x63+7");
    set_world(200);
    for (uint32_t i = 0; i < 200; i++)
        members[i].join.slots = i + 1;
    world_layout_describe(&start, world, 200);
    assert_true(strlen(start.layout) < CT_LAYOUT_MAX);
    assert_string_equal(start.layout + strlen(start.layout) - 3, "...");
    world_layout_describe(&start, world, 0);
}

TEST(gloo_is_scaled_when_all_nodes_know_how)
{
    set_world(3);
    members[0].join.knows_gloo_scale = members[2].join.knows_gloo_scale = 1;
    world_layout_describe(&start, world, 3);
    assert_false(start.uses_gloo_scale);
    members[1].join.knows_gloo_scale = 1;
    world_layout_describe(&start, world, 3);
    assert_true(start.uses_gloo_scale);
}

TEST(nodes_with_another_program_are_named)
{
    const char *unlike = start.unlike;

    set_world(6);
    world_layout_describe(&start, world, 6);
    assert_string_equal(unlike, "");
    members[1].join.program = 2;
    members[3].join.program = 0; /* unknown */
    members[4].join.program = 2;
    /* A role of its own. */
    (void)ct_copy(members[4].join.role, sizeof members[4].join.role, "ps");
    members[5].join.program = 3;
    world_layout_describe(&start, world, 6);
    assert_string_equal(unlike, "node2, node6");
    members[0].join.program = 0;
    world_layout_describe(&start, world, 6);
    assert_string_equal(unlike, "");
}

TEST(many_of_them_are_counted)
{
    const char *unlike = start.unlike;

    set_world(WORLD_MAX);
    for (size_t i = 1; i < WORLD_MAX; i++)
        members[i].join.program = 2;
    world_layout_describe(&start, world, WORLD_MAX);
    assert_true(strlen(unlike) < sizeof start.unlike);
    assert_non_null(strstr(unlike, "node2, node3, "));
    assert_string_equal(unlike + strlen(unlike) - 5, " more");
}

static void set_torch(size_t at, const char *version)
{
    (void)ct_copy(members[at].join.torch, sizeof members[at].join.torch, version);
}

TEST(versions_that_differ_are_named_where_they_are_known)
{
    const char *versions = start.versions;

    set_world(3);
    set_torch(0, "2.6");
    set_torch(2, "2.6");
    world_layout_describe(&start, world, 3);
    assert_string_equal(versions, ""); /* that of node2 is not known */
    set_torch(2, "2.4");
    world_layout_describe(&start, world, 3);
    assert_string_equal(versions, "PyTorch 2.6 on node1, but 2.4 on node3");
    set_torch(0, "");
    set_torch(1, "2.6");
    (void)ct_copy(members[0].join.driver, sizeof members[0].join.driver, "550.1");
    (void)ct_copy(members[1].join.driver, sizeof members[1].join.driver, "535.2");
    world_layout_describe(&start, world, 3);
    assert_string_equal(versions,
                        "PyTorch 2.6 on node2, but 2.4 on node3; NVIDIA's driver "
                        "550.1 on node1, but 535.2 on node2");
    members[1].join.driver[0] = '\0';
    (void)ct_copy(members[2].join.role, sizeof members[2].join.role, "ps");
    world_layout_describe(&start, world, 3);
    assert_string_equal(versions, "");
}

TEST(of_many_nodes_with_a_version_the_first_are_named)
{
    const char *versions = start.versions;

    set_world(WORLD_MAX);
    for (size_t i = 0; i < WORLD_MAX; i++)
        set_torch(i, i == 7 ? "2.4" : "2.6");
    (void)ct_copy(members[1].link.host, sizeof members[1].link.host, "node1");
    world_layout_describe(&start, world, WORLD_MAX);
    assert_string_equal(versions,
                        "PyTorch 2.6 on node1, node3, node4 and 395 more, but 2.4 "
                        "on node8");
    for (size_t i = 0; i < WORLD_MAX; i++) {
        char version[CT_VERSION_MAX];

        (void)ct_format(version, sizeof version, "2.%zu", i);
        set_torch(i, version);
    }
    world_layout_describe(&start, world, WORLD_MAX);
    assert_string_equal(versions,
                        "PyTorch 2.0 on node1, but 2.1 on node1, but 2.2 on node3, "
                        "but 2.3 on node4");
}
