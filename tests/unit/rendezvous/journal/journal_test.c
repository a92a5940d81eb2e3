/* SPDX-License-Identifier: Apache-2.0 */
/* The round that is read from the journal after each step equals the round that wrote it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/journal/journal.h"
#include "tests/lib/test.h"

/* The current round and its journal. */
static struct rig {
    struct round *round;
    struct journal_mark mark;
    struct ct_buf batch;
    struct journal_book book;
    unsigned flags; /* of the last batch */
    size_t batches;
    uint64_t now_ms;
    uint64_t survive_ms; /* --survive of all nodes */
    uint8_t replaces;    /* --survive-replace of all nodes */
} rig;

enum {
    LOST_AFTER_MS = 5000,
    HEARTBEAT_MS = 1000
};

static void clear(void)
{
    if (!rig.round)
        return;
    round_destroy(rig.round);
    journal_book_deinit(&rig.book);
    ct_buf_deinit(&rig.batch);
}

static int end(void **state)
{
    clear();
    return 0;
}

static void begin(uint32_t restarts)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 3,
                                            .max_restarts = restarts,
                                            .join_timeout_ms = 60000,
                                            .last_call_ms = 1000,
                                            .lost_after_ms = LOST_AFTER_MS};

    clear();
    rig = (struct rig){.now_ms = 1000};
    assert_int_equal(round_create(&rig.round, &settings), 0);
    ct_buf_init(&rig.batch, JOURNAL_BATCH_MAX_BYTES);
    journal_book_init(&rig.book);
}

static void write_whole(struct ct_buf *out, struct round *round)
{
    struct journal_mark mark = {0};
    const struct journal_run run = {
        .id = "job", .heartbeat_ms = HEARTBEAT_MS, .round = round};

    ct_buf_init(out, JOURNAL_BATCH_MAX_BYTES);
    assert_int_equal(journal_note_whole(&mark, &run, out), 0);
}

static struct journal_entry *first(void)
{
    assert_false(ct_list_is_empty(&rig.book.entries));
    return ct_list_entry(rig.book.entries.next, struct journal_entry, node);
}

static void assert_same(void)
{
    struct ct_buf ours, theirs;

    write_whole(&ours, rig.round);
    write_whole(&theirs, first()->round);
    assert_int_equal(ct_buf_length(&ours), ct_buf_length(&theirs));
    assert_memory_equal(ct_buf_data(&ours), ct_buf_data(&theirs), ct_buf_length(&ours));
    ct_buf_deinit(&ours);
    ct_buf_deinit(&theirs);
}

/* After each step the batch is added to the book, which then equals the round. */
static void note(void)
{
    const struct journal_run run = {
        .id = "job", .heartbeat_ms = HEARTBEAT_MS, .round = rig.round};
    int rc = journal_note(&rig.mark, &run, &rig.batch, &rig.flags);

    assert_true(rc >= 0);
    assert_int_equal(rc == 0, ct_buf_length(&rig.batch) == 0);
    if (rc == 0)
        return;
    rig.batches++;
    assert_int_equal(
        journal_book_add(&rig.book, ct_buf_data(&rig.batch), ct_buf_length(&rig.batch)),
        0);
    ct_buf_consume(&rig.batch, ct_buf_length(&rig.batch));
    if (!(rig.flags & JOURNAL_END))
        assert_same();
}

static void step(const struct round_command *command)
{
    assert_int_equal(round_step(rig.round, command, rig.now_ms), 0);
    note();
}

static void say(uint64_t id, enum ct_message_kind kind, const void *body)
{
    const struct ct_message message = {kind, .body = body};

    step(&(struct round_command){.kind = ROUND_MESSAGE, .id = id, .message = &message});
}

static struct member_link link_of(uint64_t id)
{
    struct member_link link = {.id = id, .key = 100 + id};

    snprintf(link.host, sizeof link.host, "n%d", (int)id);
    snprintf(link.seen_as, sizeof link.seen_as, "10.0.0.%d", (int)id);
    return link;
}

static void add(uint64_t id)
{
    const struct member_link link = link_of(id);

    step(&(struct round_command){.kind = ROUND_ADD, .link = &link});
}

static void join(uint64_t id)
{
    const struct ct_join message = {.slots = 2,
                                    .survive_ms = rig.survive_ms,
                                    .replaces = rig.replaces,
                                    .node_rank_hint = -1,
                                    .store_port = 9,
                                    .role = "default",
                                    .addr_count = 1,
                                    .addrs = {"fe80::1"}};

    say(id, CT_MESSAGE_JOIN, &message);
}

static void report(uint64_t id)
{
    const struct ct_failure failure = {.generation = rig.round->generation,
                                       .cause = CT_CAUSE_EXIT,
                                       .code = 3,
                                       .text = "boom"};

    say(id, CT_MESSAGE_FAILURE, &failure);
}

static void tell(uint64_t id, enum ct_message_kind kind)
{
    /* The bodies of all these messages begin with the generation. */
    const struct ct_stopped body = {.generation = rig.round->generation};

    say(id, kind, &body);
}

/* From the three nodes that every story here has. */
static void send_to_running(enum ct_message_kind kind)
{
    for (uint64_t id = 1; id <= 3; id++)
        tell(id, kind);
}

static void join_all(void)
{
    for (uint64_t id = 1; id <= 3; id++)
        join(id);
}

static void start_to_survive(uint64_t survive_ms)
{
    begin(0);
    rig.survive_ms = survive_ms;
    for (uint64_t id = 1; id <= 3; id++)
        add(id);
    join_all();
    assert_int_equal(rig.round->state, ROUND_RUNNING);
}

static void start(uint32_t restarts)
{
    begin(restarts);
    for (uint64_t id = 1; id <= 3; id++)
        add(id);
    join_all();
    assert_int_equal(rig.round->state, ROUND_RUNNING);
}

/* The server dies; the next one restores the round from the journal, with a different clock. The
 * last heartbeat that was acknowledged was sent silence_ms before. */
static void crash_after(uint64_t silence_ms)
{
    struct journal_entry *entry = first();

    rig.now_ms = silence_ms + 50;
    assert_int_equal(journal_book_restore(&rig.book, 50, rig.now_ms), 0);
    round_destroy(rig.round);
    rig.round = entry->round;
    entry->round = NULL;
    journal_book_deinit(&rig.book);
    rig.mark = (struct journal_mark){0};
    note();
    assert_int_equal(rig.flags, JOURNAL_WHOLE);
}

static void crash(void)
{
    crash_after(0);
}

static int resume(uint64_t id, uint64_t generation, int state)
{
    const struct ct_resume resume = {
        .id = id, .key = 100 + id, .generation = generation, .state = (uint8_t)state};
    const struct ct_message message = {CT_MESSAGE_RESUME, .resume = &resume};
    struct member_link link = link_of(id);

    link.peer = &rig;
    link.key = 0; /* the member keeps its own key */
    return round_step(
        rig.round,
        &(struct round_command){
            .kind = ROUND_RESUME, .id = id, .link = &link, .message = &message},
        rig.now_ms);
}

static bool was_sent(enum round_action_kind kind, uint64_t id)
{
    for (size_t i = 0; i < rig.round->action_count; i++) {
        if (rig.round->actions[i].kind == kind && rig.round->actions[i].id == id)
            return true;
    }
    return false;
}

/* ---- Tests ------------------------------------------------------------------------------- */

TEST(nothing_is_kept_before_the_first_world)
{
    begin(0);
    add(1);
    join(1);
    assert_int_equal(rig.batches, 0);
    rig.now_ms += 2000; /* after the last call */
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_RUNNING);
    assert_int_equal(rig.batches, 1);
    assert_int_equal(rig.flags, JOURNAL_WHOLE);
}

TEST(steps_that_change_nothing_keep_nothing)
{
    size_t before;

    start(0);
    before = rig.batches;
    for (int i = 0; i < 100; i++)
        tell(1, CT_MESSAGE_HEARTBEAT);
    step(&(struct round_command){.kind = ROUND_TICK});
    add(9); /* a new node that has not joined */
    assert_int_equal(rig.batches, before);
}

TEST(every_step_of_a_restart_is_followed)
{
    start(1);
    report(2);
    tell(1, CT_MESSAGE_STOPPING);
    tell(3, CT_MESSAGE_STOPPING);
    assert_int_equal(rig.round->restart_count, 1);
    send_to_running(CT_MESSAGE_STOPPED);
    assert_int_equal(rig.round->state, ROUND_FORMING);
    join_all();
    assert_int_equal(rig.round->generation, 2);
    assert_int_equal(rig.flags, JOURNAL_WHOLE);
    tell(3, CT_MESSAGE_LEAVE);
    tell(3, CT_MESSAGE_STOPPED);
    tell(1, CT_MESSAGE_STOPPED);
    step(&(struct round_command){.kind = ROUND_GONE, .id = 3, .reason = "closed"});
}

/* The next server does not let the host of a broken node in either. */
TEST(an_excluded_host_stays_out)
{
    struct ct_failure failure = {.generation = 1, .cause = CT_CAUSE_EXIT, .code = 3};
    struct member_link link = link_of(2);

    start(2);
    rig.round->settings.exclude_after = 2;
    for (failure.generation = 1; failure.generation <= 2; failure.generation++) {
        failure.node_rank = 1;
        failure.facts = (struct ct_facts){0};
        assert_true(ct_facts_add(&failure.facts, CT_FACT_HARDWARE, "Xid 79"));
        if (failure.generation == 2)
            crash();
        for (uint64_t id = 1; id <= 3 && failure.generation == 2; id++)
            assert_int_equal(resume(id, 2, CT_RESUME_RUNNING), 0);
        say(2, CT_MESSAGE_FAILURE, &failure);
        tell(1, CT_MESSAGE_STOPPING);
        tell(3, CT_MESSAGE_STOPPING);
        send_to_running(CT_MESSAGE_STOPPED);
        if (failure.generation == 1)
            join_all();
    }
    crash();
    link.id = 9;
    link.peer = &rig;
    step(&(struct round_command){.kind = ROUND_ADD, .link = &link});
    join(9);
    assert_true(was_sent(ROUND_SEND_REFUSE, 9));
    assert_int_equal(rig.round->refuse.code, CTRUN_E_EXCLUDED);
}

TEST(a_run_that_is_forgotten_ends_in_the_journal)
{
    start(0);
    send_to_running(CT_MESSAGE_SUCCEEDED);
    assert_int_equal(rig.round->state, ROUND_CLOSED);
    for (uint64_t id = 1; id <= 3; id++)
        step(&(struct round_command){.kind = ROUND_GONE, .id = id, .reason = "done"});
    assert_int_equal(rig.flags, JOURNAL_END);
    assert_true(ct_list_is_empty(&rig.book.entries));
}

TEST(members_of_a_restarted_server_resume_and_nobody_is_told_anything)
{
    start(0);
    crash();
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(resume(id, 1, CT_RESUME_RUNNING), 0);
        assert_int_equal(rig.round->action_count, 1);
        assert_true(was_sent(ROUND_SEND_RESUMED, id));
    }
    assert_int_equal(rig.round->state, ROUND_RUNNING);
    assert_int_equal(rig.round->generation, 1);
    rig.now_ms += LOST_AFTER_MS - 1;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_RUNNING);
}

TEST(a_member_that_does_not_come_back_is_lost_after_a_whole_lease)
{
    start(0);
    crash();
    assert_int_equal(resume(1, 1, CT_RESUME_RUNNING), 0);
    assert_int_equal(resume(2, 1, CT_RESUME_RUNNING), 0);
    assert_int_equal(round_next_ms(rig.round), rig.now_ms + LOST_AFTER_MS);
    rig.now_ms += LOST_AFTER_MS - 1;
    tell(1, CT_MESSAGE_HEARTBEAT);
    tell(2, CT_MESSAGE_HEARTBEAT);
    rig.now_ms++;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_STOPPING);
    assert_string_equal(rig.round->stop.cause.host, "n3");
    assert_int_equal(resume(3, 1, CT_RESUME_RUNNING), -ENOENT);
}

TEST(no_world_starts_before_the_leases_of_the_old_server_are_over)
{
    start(0);
    crash();
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(resume(id, 1, CT_RESUME_STOPPED), 0);
        tell(id, CT_MESSAGE_STOPPED);
    }
    join_all();
    assert_int_equal(rig.round->state, ROUND_FORMING);
    for (int i = 0; i < 2; i++) {
        rig.now_ms += i ? round_outlive_ms(LOST_AFTER_MS) - LOST_AFTER_MS - 1
                        : LOST_AFTER_MS;
        for (uint64_t id = 1; id <= 3; id++)
            tell(id, CT_MESSAGE_HEARTBEAT);
    }
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_FORMING);
    assert_int_equal(round_next_ms(rig.round), rig.now_ms + 1);
    rig.now_ms++;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->generation, 2);
}

/* Members get most of a lease to come back. How long a lost one may still run counts from the last
 * acknowledgement. */
TEST(the_silence_of_the_old_server_shortens_the_wait_for_a_lost_node)
{
    const uint64_t served_ms = 50, silence_ms = LOST_AFTER_MS / 2 + 350;

    start(0);
    crash_after(silence_ms);
    for (uint64_t id = 1; id <= 2; id++)
        assert_int_equal(resume(id, 1, CT_RESUME_RUNNING), 0);
    assert_int_equal(round_next_ms(rig.round), rig.now_ms + LOST_AFTER_MS / 10 * 7);
    rig.now_ms = round_next_ms(rig.round);
    for (uint64_t id = 1; id <= 2; id++)
        tell(id, CT_MESSAGE_HEARTBEAT);
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_STOPPING);
    for (uint64_t id = 1; id <= 2; id++) {
        tell(id, CT_MESSAGE_STOPPED);
        join(id);
    }
    assert_int_equal(rig.round->state, ROUND_FORMING);
    rig.now_ms = served_ms + round_outlive_ms(LOST_AFTER_MS) - 1;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_FORMING);
    assert_int_equal(round_next_ms(rig.round), rig.now_ms + 1);
    rig.now_ms++;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->generation, 2);
}

TEST(a_verdict_is_delivered_by_the_next_server)
{
    start(0);
    send_to_running(CT_MESSAGE_SUCCEEDED);
    crash();
    assert_int_equal(rig.round->verdict.outcome, CT_OUTCOME_SUCCEEDED);
    assert_int_equal(resume(2, 1, CT_RESUME_SUCCEEDED), 0);
    assert_true(was_sent(ROUND_SEND_VERDICT, 2));
}

TEST(a_stop_and_a_start_that_were_lost_are_sent_again)
{
    start(1);
    report(2);
    crash();
    assert_int_equal(resume(1, 1, CT_RESUME_RUNNING), 0);
    assert_true(was_sent(ROUND_SEND_STOP, 1));
    assert_int_equal(rig.round->stop.cause.code, 3);
    /* Nor is the START of the world sent: member 3 was never in it. */
    assert_int_equal(resume(3, 0, CT_RESUME_JOINING), 0);
    assert_int_equal(rig.round->resumed.generation, 0);
    assert_false(rig.round->resumed.is_in_world);
    start(1);
    crash();
    assert_int_equal(resume(3, 0, CT_RESUME_JOINING), 0);
    assert_true(was_sent(ROUND_SEND_START, 3));
    assert_int_equal(rig.round->resumed.generation, 1);
}

TEST(unknown_clients_and_members_of_unknown_worlds_do_not_resume)
{
    start(0);
    assert_int_equal(resume(9, 1, CT_RESUME_RUNNING), -ENOENT);
    rig.round->members.list[0]->link.key = 5;
    assert_int_equal(resume(1, 1, CT_RESUME_RUNNING), -ENOENT);
    assert_int_equal(resume(2, 7, CT_RESUME_RUNNING), -ENOENT);
    assert_int_equal(rig.round->floor, 7);
    assert_int_equal(resume(2, 1, 99), -ENOENT);
    assert_int_equal(rig.round->state, ROUND_RUNNING);
}

TEST(a_short_break_costs_nothing_and_a_long_one_the_node)
{
    start(0);
    step(&(struct round_command){.kind = ROUND_GONE, .id = 2, .reason = "reset"});
    assert_int_equal(rig.round->state, ROUND_RUNNING);
    rig.now_ms += 999;
    assert_int_equal(resume(2, 1, CT_RESUME_RUNNING), 0);
    step(&(struct round_command){.kind = ROUND_TICK});
    step(&(struct round_command){.kind = ROUND_GONE, .id = 2, .reason = "reset"});
    rig.now_ms += 1000;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->state, ROUND_STOPPING);
    assert_string_equal(rig.round->stop.cause.text, "reset");
}

/* A JOIN that was sent on the old connection counted, and the world may have started since. */
TEST(a_join_that_is_said_again_crosses_the_start)
{
    start(1);
    report(2);
    send_to_running(CT_MESSAGE_STOPPED);
    join(2);
    assert_int_equal(resume(2, 1, CT_RESUME_JOINING), 0);
    join(1);
    join(3);
    assert_int_equal(rig.round->generation, 2);
    join(2);
    assert_int_equal(rig.round->state, ROUND_RUNNING);
    assert_false(was_sent(ROUND_SEND_REFUSE, 2));
    join(2); /* only once */
    assert_true(was_sent(ROUND_SEND_REFUSE, 2));
}

/* An elected server holds the verdict back until the journal is written. */
TEST(a_verdict_that_was_not_sent_waits_for_those_who_come_back)
{
    struct round_command gone = {
        .kind = ROUND_GONE, .id = 1, .reason = "broken", .is_owed = true};

    start(0);
    send_to_running(CT_MESSAGE_SUCCEEDED);
    assert_int_equal(rig.round->state, ROUND_CLOSED);
    step(&gone);
    gone = (struct round_command){.kind = ROUND_GONE, .id = 2, .reason = "end"};
    step(&gone);
    assert_int_equal(resume(1, 1, CT_RESUME_SUCCEEDED), 0);
    assert_true(was_sent(ROUND_SEND_VERDICT, 1));
    assert_int_equal(resume(2, 1, CT_RESUME_SUCCEEDED), -ENOENT);
    note();
}

TEST(a_second_connection_takes_the_place_of_the_first)
{
    start(0);
    assert_int_equal(resume(2, 1, CT_RESUME_RUNNING), 0);
    assert_true(was_sent(ROUND_DROP, 2));
    assert_null(rig.round->actions[0].peer); /* the old connection */
    assert_true(was_sent(ROUND_SEND_RESUMED, 2));
}

TEST(frames_hold_whole_batches_only)
{
    uint8_t bytes[JOURNAL_FRAME_BYTES + 5] = {0};
    const uint8_t *batch;
    size_t length;

    memcpy(bytes + JOURNAL_FRAME_BYTES, "hello", 5);
    journal_frame_encode(bytes, bytes + JOURNAL_FRAME_BYTES, 5);
    assert_int_equal(journal_frame_decode(bytes, sizeof bytes, &batch, &length),
                     sizeof bytes);
    assert_int_equal(length, 5);
    for (size_t cut = 0; cut < sizeof bytes; cut++)
        assert_int_equal(journal_frame_decode(bytes, cut, &batch, &length), 0);
    for (size_t i = 4; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        assert_int_equal(journal_frame_decode(bytes, sizeof bytes, &batch, &length),
                         -EBADMSG);
        bytes[i] ^= 1;
    }
}

TEST(batches_without_their_beginning_or_with_bad_bytes_are_refused)
{
    struct journal_book book;
    struct ct_buf whole;

    start(0);
    write_whole(&whole, rig.round);
    journal_book_init(&book);
    for (size_t cut = 0; cut < ct_buf_length(&whole); cut++)
        (void)journal_book_add(&book, ct_buf_data(&whole), cut);
    assert_true(journal_book_add(&book, ct_buf_data(&whole), 4) == -EBADMSG);
    assert_int_equal(
        journal_book_add(&book, ct_buf_data(&whole), ct_buf_length(&whole)), 0);
    assert_int_equal(book.last_id, 3);
    /* Not WHOLE any more, so its members are in the book already. */
    whole.data[whole.start + 1] = 0;
    assert_int_equal(
        journal_book_add(&book, ct_buf_data(&whole), ct_buf_length(&whole)), -EBADMSG);
    assert_true(ct_list_is_empty(&book.entries));
    journal_book_deinit(&book);
    ct_buf_deinit(&whole);
}

/* Each node has two ranks. */
static void stand_still(uint64_t id, uint32_t epoch, uint8_t ranks)
{
    const struct ct_still still = {
        .generation = rig.round->generation, .epoch = epoch, .ranks = {ranks}};

    say(id, CT_MESSAGE_STILL, &still);
}

static void lose(uint64_t id, int32_t rank)
{
    const struct ct_loss loss = {.generation = 1, .rank = rank, .text = "gone"};

    say(id, CT_MESSAGE_LOSS, &loss);
}

TEST(who_goes_on_is_kept_and_told_again)
{
    start(0);
    lose(2, 3);
    stand_still(1, 0, 0x03);
    crash(); /* the STILL of the first node is lost, the loss is not */
    assert_int_equal(resume(1, 1, CT_RESUME_RUNNING), 0);
    assert_true(was_sent(ROUND_SEND_LOSS, 1));
    assert_false(was_sent(ROUND_SEND_WORLD, 1));
    note();
    lose(2, 3);
    assert_int_equal(rig.round->loss.losses, 1);
    stand_still(2, 0, 0x04);
    stand_still(3, 0, 0x30);
    assert_int_equal(rig.round->world.epoch, 0);
    stand_still(1, 0, 0x03);
    assert_int_equal(rig.round->world.epoch, 1);
    crash();
    assert_int_equal(rig.round->world.epoch, 1);
    assert_int_equal(rig.round->world.ranks[0], 0x37);
    assert_int_equal(resume(2, 1, CT_RESUME_RUNNING), 0);
    assert_true(was_sent(ROUND_SEND_WORLD, 2));
    assert_false(was_sent(ROUND_SEND_LOSS, 2));
    note();
    stand_still(2, 0, 0x04); /* sent again, but decided already */
    for (uint64_t id = 1; id <= 3; id++)
        assert_false(rig.round->members.list[id - 1]->is_still);
}

/* A restarted server finds the loss in the world, which lacks a node, and waits until the workers
 * of that node are dead, too. */
TEST(a_lost_node_is_outlived_by_the_next_server)
{
    start_to_survive(3000);
    step(&(struct round_command){.kind = ROUND_GONE, .id = 3, .reason = "broken"});
    rig.now_ms += LOST_AFTER_MS / 5;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->loss.losses, 2);
    assert_int_equal(rig.round->state, ROUND_RUNNING);
    crash();
    for (uint64_t id = 1; id <= 2; id++) {
        assert_int_equal(resume(id, 1, CT_RESUME_RUNNING), 0);
        assert_true(was_sent(ROUND_SEND_LOSS, id));
        note();
        stand_still(id, 0, id == 1 ? 0x03 : 0x0c);
    }
    assert_int_equal(rig.round->world.epoch, 0); /* its workers may live */
    assert_true(rig.round->ranks_fence_ms > rig.now_ms);
    rig.now_ms = 4000;
    for (uint64_t id = 1; id <= 2; id++)
        say(id, CT_MESSAGE_HEARTBEAT, &(const struct ct_heartbeat){.generation = 1});
    assert_int_equal(round_next_ms(rig.round), rig.round->ranks_fence_ms);
    rig.now_ms = rig.round->ranks_fence_ms;
    step(&(struct round_command){.kind = ROUND_TICK});
    assert_int_equal(rig.round->world.epoch, 1);
    assert_int_equal(rig.round->world.ranks[0], 0x0f);
}

/* A node that comes back is told that a rank waits, until that rank is in a world. */
TEST(one_in_the_place_of_a_lost_rank_is_told_to_who_comes_back)
{
    const struct ct_grow grow = {.generation = 1, .rank = 3};

    start(0);
    lose(2, 3);
    stand_still(1, 0, 0x03);
    stand_still(2, 0, 0x04);
    stand_still(3, 0, 0x30);
    say(2, CT_MESSAGE_GROW, &grow);
    crash();
    assert_int_equal(resume(2, 1, CT_RESUME_RUNNING), 0);
    say(2, CT_MESSAGE_GROW, &grow); /* as its agent does */
    stand_still(2, 1, 0x0c);
    note();
    assert_int_equal(resume(1, 1, CT_RESUME_RUNNING), 0);
    assert_true(was_sent(ROUND_SEND_GROW, 1));
    note();
    assert_int_equal(resume(3, 1, CT_RESUME_RUNNING), 0);
    stand_still(1, 1, 0x03);
    stand_still(3, 1, 0x30);
    assert_int_equal(rig.round->world.epoch, 2);
    assert_int_equal(rig.round->world.ranks[0], 0x3f);
}

/* ---- A world from after a reload ---- */

static void say_reload(uint64_t id, enum ct_reload_step step)
{
    const struct ct_reload reload = {
        .number = 1, .step = (uint8_t)step, .program = 7, .command = "b.py"};

    say(id, CT_MESSAGE_RELOAD, &reload);
}

/* The second world runs the new program. */
static void start_reloaded(void)
{
    begin(0);
    rig.survive_ms = 3000;
    rig.replaces = 1;
    for (uint64_t id = 1; id <= 3; id++)
        add(id);
    join_all();
    say_reload(1, CT_RELOAD_ASK);
    for (uint64_t id = 1; id <= 3; id++)
        say_reload(id, CT_RELOAD_ANSWER);
    assert_int_equal(rig.round->reload.number, 1);
    send_to_running(CT_MESSAGE_STOPPED);
    join_all();
    assert_int_equal(rig.round->generation, 2);
    assert_int_equal(rig.round->state, ROUND_RUNNING);
}

/* A second later the nodes 1 and 2 are still there. */
static void pass_second(void)
{
    rig.now_ms += 1000;
    for (uint64_t id = 1; id <= 2; id++)
        say(id, CT_MESSAGE_HEARTBEAT, &(const struct ct_heartbeat){.generation = 2});
    step(&(struct round_command){.kind = ROUND_TICK});
}

/* Nodes 1 and 2 continue without node 3; no process of it can be alive any more. */
static void lose_third(void)
{
    step(&(struct round_command){.kind = ROUND_GONE, .id = 3, .reason = "broken"});
    pass_second();
    stand_still(1, 0, 0x03);
    stand_still(2, 0, 0x0c);
    for (int i = 0; i < 10; i++)
        pass_second();
    assert_int_equal(rig.round->world.epoch, 1);
}

/* The new node runs the program that this world runs, which its agents tell the next server. */
TEST(a_world_that_began_after_the_reload_takes_a_new_node_of_the_next_server)
{
    start_reloaded();
    crash();
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(resume(id, 2, CT_RESUME_RUNNING), 0);
        note();
        say_reload(id, CT_RELOAD_TAKE);
    }
    lose_third();
    add(4);
    join(4);
    pass_second();
    assert_int_equal(rig.round->state, ROUND_RUNNING);
    assert_int_equal(member_find(&rig.round->members, 4)->state, MEMBER_RUNNING);
}

int main(void)
{
    return test_run(NULL, end);
}
