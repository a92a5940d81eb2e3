/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "rendezvous/session/gate.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

struct rig {
    struct gate gate;
    struct conn conn; /* closing: what is released to it goes nowhere */
    struct outbox outbox;
};

static const struct ct_succeeded body;
static const struct ct_message message = {CT_MESSAGE_SUCCEEDED, .succeeded = &body};

static struct rig *begin(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    gate_init(&rig->gate);
    rig->conn.state = CONN_CLOSING;
    outbox_init(&rig->outbox, &rig->conn);
    return rig;
}

static void open_gate(struct gate *gate)
{
    atomic_store(&gate->until_ms, ct_deadline_ms(60000));
}

static void a_gate_is_closed_until_somebody_says_how_long_it_is_open(void **state)
{
    struct rig rig;

    (void)state;
    begin(&rig);
    assert_false(gate_is_open(&rig.gate));
    open_gate(&rig.gate);
    assert_true(gate_is_open(&rig.gate));
    atomic_store(&rig.gate.until_ms, ct_now_ms());
    assert_false(gate_is_open(&rig.gate));
}

static void a_gate_is_closed_while_the_journal_is_not_kept(void **state)
{
    struct rig rig;

    (void)state;
    open_gate(&begin(&rig)->gate);
    atomic_store(&rig.gate.wanted, 7);
    atomic_store(&rig.gate.kept, 6);
    assert_false(gate_is_open(&rig.gate));
    atomic_store(&rig.gate.kept, 7);
    assert_true(gate_is_open(&rig.gate));
}

static void what_comes_while_something_is_held_waits_behind_it(void **state)
{
    struct rig rig;
    size_t one;

    (void)state;
    begin(&rig);
    assert_true(gate_hold(&rig.gate, &rig.outbox, &message));
    one = ct_buf_length(&rig.outbox.held);
    open_gate(&rig.gate); /* but nobody has released it yet */
    assert_true(gate_hold(&rig.gate, &rig.outbox, &message));
    assert_int_equal(ct_buf_length(&rig.outbox.held), 2 * one);
    gate_release(&rig.gate);
    assert_int_equal(ct_buf_length(&rig.outbox.held), 0);
    assert_false(gate_hold(&rig.gate, &rig.outbox, &message));
    outbox_deinit(&rig.outbox);
}

static void a_closed_gate_releases_nothing_and_drops_what_it_is_told_to(void **state)
{
    struct rig rig;

    (void)state;
    begin(&rig);
    assert_true(gate_hold(&rig.gate, &rig.outbox, &message));
    gate_release(&rig.gate);
    assert_true(ct_buf_length(&rig.outbox.held) > 0);
    gate_drop(&rig.gate);
    assert_int_equal(ct_buf_length(&rig.outbox.held), 0);
    assert_true(ct_list_is_empty(&rig.gate.held));
    outbox_deinit(&rig.outbox);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gate_is_closed_until_somebody_says_how_long_it_is_open),
        cmocka_unit_test(a_gate_is_closed_while_the_journal_is_not_kept),
        cmocka_unit_test(what_comes_while_something_is_held_waits_behind_it),
        cmocka_unit_test(a_closed_gate_releases_nothing_and_drops_what_it_is_told_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
