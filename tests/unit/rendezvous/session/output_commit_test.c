/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "rendezvous/session/output_commit.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

struct rig {
    struct output_commit commit;
    struct conn conn; /* closing, so that output that is released is not sent */
    struct outbox outbox;
};

static const struct ct_succeeded body;
static const struct ct_message message = {CT_MESSAGE_SUCCEEDED, .succeeded = &body};

static struct rig *begin(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    output_commit_init(&rig->commit);
    rig->conn.state = CONN_CLOSING;
    outbox_init(&rig->outbox, &rig->conn);
    return rig;
}

static void let_send(struct output_commit *commit)
{
    atomic_store(&commit->until_ms, ct_deadline_ms(60000));
}

static void nothing_may_be_sent_until_somebody_says_for_how_long(void **state)
{
    struct rig rig;

    begin(&rig);
    assert_false(output_commit_may_send(&rig.commit));
    let_send(&rig.commit);
    assert_true(output_commit_may_send(&rig.commit));
    atomic_store(&rig.commit.until_ms, ct_now_ms());
    assert_false(output_commit_may_send(&rig.commit));
}

static void nothing_may_be_sent_while_the_journal_is_not_kept(void **state)
{
    struct rig rig;

    let_send(&begin(&rig)->commit);
    atomic_store(&rig.commit.wanted, 7);
    atomic_store(&rig.commit.kept, 6);
    assert_false(output_commit_may_send(&rig.commit));
    atomic_store(&rig.commit.kept, 7);
    assert_true(output_commit_may_send(&rig.commit));
}

static void what_comes_while_something_is_held_waits_behind_it(void **state)
{
    struct rig rig;
    size_t one;

    begin(&rig);
    assert_true(output_commit_hold(&rig.commit, &rig.outbox, &message));
    one = ct_buf_length(&rig.outbox.held);
    let_send(&rig.commit); /* not released yet */
    assert_true(output_commit_hold(&rig.commit, &rig.outbox, &message));
    assert_int_equal(ct_buf_length(&rig.outbox.held), 2 * one);
    output_commit_release(&rig.commit);
    assert_int_equal(ct_buf_length(&rig.outbox.held), 0);
    assert_false(output_commit_hold(&rig.commit, &rig.outbox, &message));
    outbox_deinit(&rig.outbox);
}

static void
nothing_is_released_before_its_time_and_all_is_dropped_when_told(void **state)
{
    struct rig rig;

    begin(&rig);
    assert_true(output_commit_hold(&rig.commit, &rig.outbox, &message));
    output_commit_release(&rig.commit);
    assert_true(ct_buf_length(&rig.outbox.held) > 0);
    output_commit_drop(&rig.commit);
    assert_int_equal(ct_buf_length(&rig.outbox.held), 0);
    assert_true(ct_list_is_empty(&rig.commit.held));
    outbox_deinit(&rig.outbox);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_may_be_sent_until_somebody_says_for_how_long),
        cmocka_unit_test(nothing_may_be_sent_while_the_journal_is_not_kept),
        cmocka_unit_test(what_comes_while_something_is_held_waits_behind_it),
        cmocka_unit_test(
            nothing_is_released_before_its_time_and_all_is_dropped_when_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
