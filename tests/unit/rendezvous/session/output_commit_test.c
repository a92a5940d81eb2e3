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

TEST(nothing_may_be_sent_until_somebody_says_for_how_long)
{
    struct rig rig;

    begin(&rig);
    assert_false(output_commit_may_send(&rig.commit));
    let_send(&rig.commit);
    assert_true(output_commit_may_send(&rig.commit));
    atomic_store(&rig.commit.until_ms, ct_now_ms());
    assert_false(output_commit_may_send(&rig.commit));
}

TEST(nothing_may_be_sent_while_the_journal_is_not_kept)
{
    struct rig rig;

    let_send(&begin(&rig)->commit);
    atomic_store(&rig.commit.wanted, 7);
    atomic_store(&rig.commit.kept, 6);
    assert_false(output_commit_may_send(&rig.commit));
    atomic_store(&rig.commit.kept, 7);
    assert_true(output_commit_may_send(&rig.commit));
}

TEST(what_comes_while_something_is_held_waits_behind_it)
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

TEST(nothing_is_released_before_its_time_and_all_is_dropped_when_told)
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

/* ---- An encrypted link ---- */

/* Nothing is sent: it stays in conn->out. */
void __wrap_conn_flush(struct conn *conn);
void __wrap_conn_flush(struct conn *conn)
{
    (void)conn;
}

static void open_sealed(struct rig *rig, struct ct_seal *agent)
{
    begin(rig);
    rig->conn.state = CONN_OPEN;
    rig->conn.out = &rig->conn.own_out;
    ct_buf_init(rig->conn.out, CONN_OUT_MAX_BYTES);
    rig->outbox.seal = (struct ct_seal){.is_on = true, .send_key = {1}};
    *agent = (struct ct_seal){.is_on = true, .receive_key = {1}};
}

static void assert_next(struct rig *rig, struct ct_seal *agent,
                        enum ct_message_kind kind)
{
    static uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    struct ct_buf *out = rig->conn.out;
    struct ct_frame frame, inner;
    const int taken = ct_frame_decode(ct_buf_data(out), ct_buf_length(out), &frame);

    assert_true(taken > 0);
    assert_int_equal(ct_seal_decode(agent, &frame, plain, &inner), 0);
    assert_int_equal(inner.kind, kind);
    ct_buf_consume(out, (size_t)taken);
}

static void close_sealed(struct rig *rig)
{
    assert_int_equal(ct_buf_length(rig->conn.out), 0);
    outbox_deinit(&rig->outbox);
    ct_buf_deinit(rig->conn.out);
}

TEST(a_refusal_can_be_read_while_something_is_held)
{
    const struct ct_refuse refuse = {.code = CTRUN_E_EXCLUDED};
    struct ct_seal agent;
    struct rig rig;

    open_sealed(&rig, &agent);
    output_commit_send(&rig.commit, &rig.outbox, &message);
    output_commit_send(&rig.commit, &rig.outbox,
                       &(struct ct_message){CT_MESSAGE_REFUSE, .refuse = &refuse});
    assert_next(&rig, &agent, CT_MESSAGE_REFUSE);
    close_sealed(&rig);
}

/* The agent cannot turn on its seal before it has read the proof. */
TEST(a_handshake_ends_in_plain_while_nothing_may_be_sent)
{
    const struct ct_proof proof = {0};
    struct ct_seal agent, seal, plain = {.is_on = false};
    struct rig rig;

    open_sealed(&rig, &agent);
    seal = rig.outbox.seal;
    rig.outbox.seal = plain;
    output_commit_send(&rig.commit, &rig.outbox,
                       &(struct ct_message){CT_MESSAGE_SERVER_PROOF, .proof = &proof});
    rig.outbox.seal = seal;
    output_commit_send(&rig.commit, &rig.outbox, &message);
    let_send(&rig.commit);
    output_commit_release(&rig.commit);
    assert_next(&rig, &plain, CT_MESSAGE_SERVER_PROOF);
    assert_next(&rig, &agent, CT_MESSAGE_SUCCEEDED);
    close_sealed(&rig);
}

TEST(what_was_held_is_read_in_its_order)
{
    const struct ct_heartbeat ack = {.sequence = 1};
    struct ct_seal agent;
    struct rig rig;

    open_sealed(&rig, &agent);
    output_commit_send(&rig.commit, &rig.outbox, &message);
    output_commit_send(
        &rig.commit, &rig.outbox,
        &(struct ct_message){CT_MESSAGE_HEARTBEAT_ACK, .heartbeat = &ack});
    let_send(&rig.commit);
    output_commit_release(&rig.commit);
    output_commit_send(&rig.commit, &rig.outbox, &message);
    assert_next(&rig, &agent, CT_MESSAGE_SUCCEEDED);
    assert_next(&rig, &agent, CT_MESSAGE_HEARTBEAT_ACK);
    assert_next(&rig, &agent, CT_MESSAGE_SUCCEEDED);
    close_sealed(&rig);
}
