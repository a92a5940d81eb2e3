/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use a worker store, where the list comes from, and what is printed about the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/net/rejects.h"
#include "rendezvous/session/roster.h"
#include "rendezvous/store/allow_list.h"
#include "tests/lib/test.h"

static struct ct_addr parse(const char *text)
{
    struct ct_addr addr;

    assert_int_equal(ct_addr_parse(text, 1, &addr), 0);
    return addr;
}

static void add(struct allow_list *list, const char *text)
{
    const struct ct_addr addr = parse(text);
    uint8_t key[1][16];

    ct_addr_key(key[0], &addr);
    assert_int_equal(allow_list_add(list, (const uint8_t(*)[16])key, 1), 0);
}

static bool has(const struct allow_list *list, const char *remote, const char *local)
{
    const struct ct_addr r = parse(remote), l = parse(local);

    return allow_list_has(list, &r, &l);
}

TEST(members_and_this_machine_are_let_in_and_nobody_else)
{
    struct allow_list list = {0};

    add(&list, "10.0.0.2");
    add(&list, "fd00::2");
    add(&list, "10.0.0.1");
    assert_false(has(&list, "10.0.0.2", "10.0.0.1")); /* the list is not sealed yet */
    allow_list_seal(&list);
    assert_true(has(&list, "10.0.0.2", "10.0.0.1"));
    assert_true(has(&list, "::ffff:10.0.0.2", "::ffff:10.0.0.1"));
    assert_true(has(&list, "fd00::2", "fd00::1"));
    assert_false(has(&list, "10.0.0.3", "10.0.0.1"));
    assert_false(has(&list, "fd00::3", "fd00::1"));
    assert_true(has(&list, "127.0.0.1", "127.0.0.1"));
    assert_true(has(&list, "10.0.0.9", "10.0.0.9")); /* from the store's own address */
    add(&list, "10.0.0.3");                          /* the list of the next round */
    allow_list_seal(&list);
    assert_true(has(&list, "10.0.0.3", "10.0.0.1"));
    assert_false(has(&list, "10.0.0.2", "10.0.0.1"));
    allow_list_deinit(&list);
    assert_false(has(&list, "10.0.0.3", "10.0.0.1"));
}

TEST(a_list_ends_at_its_maximum)
{
    struct allow_list list = {0};
    uint8_t(*keys)[16] = calloc(ALLOW_LIST_MAX, sizeof *keys);

    assert_non_null(keys);
    assert_int_equal(allow_list_add(&list, (const uint8_t(*)[16])keys, ALLOW_LIST_MAX),
                     0);
    assert_true(allow_list_add(&list, (const uint8_t(*)[16])keys, 1) < 0);
    allow_list_deinit(&list);
    free(keys);
}

/* ---- Where it comes from ----------------------------------------------------------------- */

static struct round *make_world(uint32_t nodes, uint8_t addr_count)
{
    const struct round_settings settings = {.min_nodes = nodes,
                                            .max_nodes = nodes,
                                            .join_timeout_ms = 1000,
                                            .lost_after_ms = 1000};
    struct ct_join join = {
        .slots = 1, .store_port = 1, .node_rank_hint = -1, .addr_count = addr_count};
    const struct ct_message message = {CT_MESSAGE_JOIN, .join = &join};
    struct round *round;

    assert_int_equal(round_create(&round, &settings), 0);
    for (uint32_t i = 0; i < nodes; i++) {
        struct member_link link = {.id = i + 1, .peer = &join, .host = "n"};

        snprintf(link.seen_as, sizeof link.seen_as, "10.1.%u.%u", i / 256, i % 256);
        for (int a = 0; a < addr_count; a++)
            snprintf(join.addrs[a], sizeof join.addrs[a], "fd00::%x:%x", i,
                     (unsigned)a + 1);
        assert_int_equal(round_step(round,
                                    &(struct round_command){.kind = ROUND_ADD,
                                                            .id = link.id,
                                                            .link = &link},
                                    1),
                         0);
        assert_int_equal(round_step(round,
                                    &(struct round_command){.kind = ROUND_MESSAGE,
                                                            .id = link.id,
                                                            .message = &message},
                                    1),
                         0);
    }
    assert_int_equal(round->state, ROUND_RUNNING);
    return round;
}

static size_t collect(struct allow_list *list, const struct round *round)
{
    struct ct_members members;
    struct roster roster;
    size_t pieces = 0;

    roster_init(&roster, round);
    while (roster_next(&roster, &members)) {
        assert_false(list->is_sealed);
        assert_int_equal(members.generation, round->generation);
        assert_int_equal(
            allow_list_add(list, (const uint8_t(*)[16])members.keys, members.count), 0);
        if (members.is_last)
            allow_list_seal(list);
        pieces++;
    }
    assert_true(list->is_sealed);
    return pieces;
}

TEST(a_roster_names_every_address_of_every_member)
{
    struct round *round = make_world(100, 3);
    struct allow_list list = {0};

    assert_true(collect(&list, round) > 1);
    assert_int_equal(list.count, 400);
    assert_true(has(&list, "10.1.0.99", "10.1.0.0"));
    assert_true(has(&list, "fd00::63:3", "fd00::1"));
    assert_false(has(&list, "fd00::64:1", "fd00::1"));
    allow_list_deinit(&list);
    round_destroy(round);
}

TEST(a_roster_of_a_huge_world_keeps_the_address_of_each)
{
    struct round *round = make_world(15000, 8);
    struct allow_list list = {0};

    (void)collect(&list, round);
    assert_true(list.count <= ALLOW_LIST_MAX);
    /* The last node, by the address that the server saw. */
    assert_true(has(&list, "10.1.58.151", "10.9.9.9"));
    allow_list_deinit(&list);
    round_destroy(round);
}

/* ---- The others -------------------------------------------------------------------------- */

TEST(unknown_clients_of_one_kind_get_one_line_in_ten_seconds)
{
    struct rejects rejects = {0};
    uint64_t more = 99;

    assert_true(rejects_note(&rejects, REJECT_SLOW, 5, &more));
    assert_int_equal(more, 0);
    for (uint64_t i = 0; i < 100; i++)
        assert_false(rejects_note(&rejects, REJECT_SLOW, 5 + i, &more));
    assert_true(rejects_note(&rejects, REJECT_FOREIGN, 50, &more));
    assert_int_equal(more, 0);
    assert_true(rejects_note(&rejects, REJECT_SLOW, 5 + CT_SELDOM_MS, &more));
    assert_int_equal(more, 100);
    assert_int_equal(rejects.kinds[REJECT_SLOW].count, 102);
    for (int i = 0; i < REJECT_KINDS; i++)
        assert_true(strlen(reject_name((enum reject_kind)i)) > 0 &&
                    strlen(reject_sentence((enum reject_kind)i)) > 0);
}
