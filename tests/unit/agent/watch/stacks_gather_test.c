/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of several nodes, in the order in which they arrive. */
#include "agent/watch/stacks_gather.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

enum {
    TICKET = 7
};

static bool take(struct stacks_gather *gather, enum ct_stacks_what what, uint32_t node,
                 const char *text)
{
    static struct ct_stacks message;

    message = (struct ct_stacks){
        .what = (uint8_t)what, .ticket = TICKET, .nodes = 2, .node = node};
    (void)ct_format(message.host, sizeof message.host, "n%u", node);
    (void)ct_copy(message.text, sizeof message.text, text);
    return stacks_gather_on_stacks(gather, &message);
}

static void check_text(const struct stacks_gather *gather, const char *own,
                       const char *wanted)
{
    struct ct_buf text, out;

    ct_buf_init(&text, 4096);
    ct_buf_init(&out, 8 << 20);
    assert_int_equal(ct_buf_append(&text, own, strlen(own)), 0);
    assert_int_equal(stacks_gather_write(gather, &out, 1, "n1", &text, 2500), 0);
    assert_int_equal(ct_buf_length(&out), strlen(wanted));
    assert_memory_equal(ct_buf_data(&out), wanted, strlen(wanted));
    ct_buf_deinit(&text);
    ct_buf_deinit(&out);
}

TEST(nodes_are_shown_in_their_order_whoever_speaks_first)
{
    struct stacks_gather *gather = stacks_gather_create(TICKET);

    assert_false(take(gather, CT_STACKS_ASKED, 2, ""));
    assert_false(take(gather, CT_STACKS_ASKED, 0, ""));
    assert_false(take(gather, CT_STACKS_TEXT, 2, "rank 2\n"));
    assert_false(take(gather, CT_STACKS_END, 0, "rank 0\n"));
    assert_true(take(gather, CT_STACKS_END, 2, "rank 3\n"));
    check_text(gather, "rank 1\n",
               "node 0 (n0):\nrank 0\nnode 1 (n1):\nrank 1\nnode 2 (n2):\nrank 2\n"
               "rank 3\n");
    stacks_gather_destroy(gather);
}

TEST(a_node_that_does_not_end_is_said_to_be_missing)
{
    struct stacks_gather *gather = stacks_gather_create(TICKET);

    (void)take(gather, CT_STACKS_ASKED, 0, "");
    (void)take(gather, CT_STACKS_ASKED, 2, "");
    assert_false(take(gather, CT_STACKS_TEXT, 2, "rank 2\n"));
    assert_false(take(gather, CT_STACKS_END, 0, "rank 0\n"));
    check_text(gather, "", "node 0 (n0):\nrank 0\nnode 2 (n2): no answer in 2.5 s\n");
    stacks_gather_destroy(gather);
    gather = stacks_gather_create(TICKET);
    check_text(
        gather, "rank 1\n",
        "node 1 (n1):\nrank 1\nthe other nodes: no answer from the rendezvous in "
        "2.5 s\n");
    stacks_gather_destroy(gather);
}

TEST(what_was_not_asked_is_not_heard)
{
    struct stacks_gather *gather = stacks_gather_create(TICKET + 1);

    assert_false(take(gather, CT_STACKS_ASKED, 0, "")); /* of another request */
    stacks_gather_destroy(gather);
    gather = stacks_gather_create(TICKET);
    (void)take(gather, CT_STACKS_ASKED, 0, "");
    (void)take(gather, CT_STACKS_ASKED, 0, ""); /* a repeated message */
    (void)take(gather, CT_STACKS_ASKED, 2, "");
    (void)take(gather, CT_STACKS_ASKED, 3, ""); /* more than the two that were asked */
    assert_false(take(gather, CT_STACKS_END, 3, "other\n"));
    assert_false(take(gather, CT_STACKS_ASK, 0, "no\n"));
    assert_false(take(gather, CT_STACKS_END, 0, "a\n"));
    assert_false(take(gather, CT_STACKS_TEXT, 0, "more after its end\n"));
    assert_true(take(gather, CT_STACKS_END, 2, "b\n"));
    check_text(gather, "", "node 0 (n0):\na\nnode 2 (n2):\nb\n");
    stacks_gather_destroy(gather);
}

TEST(a_node_that_says_more_than_its_share_is_heard_no_more)
{
    struct stacks_gather *gather = stacks_gather_create(TICKET);
    char *text = malloc(CT_STACKS_TEXT_MAX);
    struct ct_buf own, out;

    memset(text, 'x', CT_STACKS_TEXT_MAX - 1);
    text[CT_STACKS_TEXT_MAX - 1] = '\0';
    (void)take(gather, CT_STACKS_ASKED, 0, "");
    (void)take(gather, CT_STACKS_ASKED, 2, "");
    for (int i = 0; i < 1000; i++)
        (void)take(gather, CT_STACKS_TEXT, 0, text);
    ct_buf_init(&own, 1);
    ct_buf_init(&out, 8 << 20);
    assert_int_equal(stacks_gather_write(gather, &out, 1, "n1", &own, 0), 0);
    assert_in_range(ct_buf_length(&out), CT_STACKS_ALL_MAX_BYTES / 2,
                    CT_STACKS_ALL_MAX_BYTES / 2 + CT_STACKS_TEXT_MAX + 256);
    ct_buf_deinit(&out);
    free(text);
    stacks_gather_destroy(gather);
}

TEST(where_nobody_is_asked_it_is_over_at_once)
{
    struct stacks_gather *gather = stacks_gather_create(TICKET);
    static const struct ct_stacks none = {
        .what = CT_STACKS_ASKED, .ticket = TICKET, .left_out = 3};

    assert_true(stacks_gather_on_stacks(gather, &none));
    check_text(gather, "a\n",
               "node 1 (n1):\na\nand 3 more nodes: give a rank to see its stack\n");
    stacks_gather_destroy(gather);
}
