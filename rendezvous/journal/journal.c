/* SPDX-License-Identifier: Apache-2.0 */
/* Writing: makes a batch of the changes of one step. Reading is in journal_book.c. */
#include "rendezvous/journal/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/journal/journal_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/hash.h"

enum {
    FIXED_MAX_BYTES = 2048 /* room for the fields of a record that are no messages */
};

/* Sticky: after the first failure nothing is appended any more. */
struct batch {
    struct ct_buf *out;
    int rc;
};

/* ---- Records ----------------------------------------------------------------------------- */

static void append(struct batch *batch, const void *data, size_t length)
{
    if (batch->rc == 0)
        batch->rc = ct_buf_append(batch->out, data, length);
}

/* Returns where the record begins, for end_record(). */
static size_t begin_record(struct batch *batch, enum journal_kind kind)
{
    const size_t at = ct_buf_length(batch->out);
    const uint8_t head[JOURNAL_RECORD_BYTES] = {(uint8_t)kind};

    append(batch, head, sizeof head);
    return at;
}

/* The length is known only now: it is inserted after the byte of the kind. */
static void end_record(struct batch *batch, size_t at)
{
    struct ct_writer out;

    if (batch->rc < 0)
        return;
    ct_writer_init(&out, batch->out->data + batch->out->start + at + 1, 4);
    ct_write_u32(&out,
                 (uint32_t)(ct_buf_length(batch->out) - at - JOURNAL_RECORD_BYTES));
}

static void append_fixed(struct batch *batch, const struct ct_writer *fields)
{
    const int length = ct_write_end(fields);

    if (length < 0)
        batch->rc = length;
    else
        append(batch, fields->data, (size_t)length);
}

static void append_message(struct batch *batch, enum ct_message_kind kind,
                           const void *body)
{
    const struct ct_message message = {kind, .body = body};

    if (batch->rc == 0)
        batch->rc = ct_message_encode(batch->out, &message);
}

static void add_number(struct batch *batch, enum journal_kind kind, uint64_t number)
{
    const size_t at = begin_record(batch, kind);
    uint8_t bytes[8];
    struct ct_writer out;

    ct_writer_init(&out, bytes, sizeof bytes);
    ct_write_u64(&out, number);
    append_fixed(batch, &out);
    end_record(batch, at);
}

/* Here and in the functions below the order of the fields is the format: journal_book.c reads the
 * same order. */
static void add_settings(struct batch *batch, const struct journal_run *run)
{
    const struct round_settings *settings = &run->round->settings;
    const size_t at = begin_record(batch, JOURNAL_SETTINGS);
    uint8_t bytes[FIXED_MAX_BYTES];
    struct ct_writer out;

    ct_writer_init(&out, bytes, sizeof bytes);
    ct_write_u32(&out, settings->min_nodes);
    ct_write_u32(&out, settings->max_nodes);
    ct_write_u32(&out, settings->max_restarts);
    ct_write_u64(&out, settings->join_timeout_ms);
    ct_write_u64(&out, settings->last_call_ms);
    ct_write_u64(&out, settings->lost_after_ms);
    ct_write_u64(&out, settings->pause_ms);
    ct_write_u32(&out, settings->node_unit);
    ct_write_u16(&out, settings->endpoint_port);
    ct_write_u64(&out, run->heartbeat_ms);
    ct_write_u64(&out, settings->instance);
    append_fixed(batch, &out);
    end_record(batch, at);
}

static void add_state(struct batch *batch, const struct round *round)
{
    const size_t at = begin_record(batch, JOURNAL_STATE);
    uint8_t bytes[FIXED_MAX_BYTES];
    struct ct_writer out;

    ct_writer_init(&out, bytes, sizeof bytes);
    ct_write_u8(&out, (uint8_t)round->state);
    ct_write_u64(&out, round->generation);
    ct_write_u64(&out, round->floor);
    ct_write_u32(&out, round->restart_count);
    ct_write_u32(&out, round->world_count);
    ct_write_u64(&out, round->lost_count);
    ct_write_u8(&out, round->is_undecided);
    ct_write_u8(&out, round->is_finishing);
    ct_write_u8(&out, round->has_fingerprint);
    ct_write_u64(&out, round->fingerprint);
    ct_write_u8(&out, round->outcome);
    ct_write_u8(&out, round->exit_code);
    ct_write_u8(&out, round->crash_loop.cause);
    ct_write_u32(&out, (uint32_t)round->crash_loop.code);
    ct_write_i64(&out, round->crash_loop.step);
    ct_write_u64(&out, round->crash_loop.line);
    ct_write_u64(&out, round->culprit_id);
    append_fixed(batch, &out);
    end_record(batch, at);
}

/* The verdict that would be sent now. Allocated only for the failures it has: most have none, a
 * full one has 54 KiB. NULL: out of memory. Caller frees. */
static struct ct_verdict *make_verdict(const struct round *round)
{
    const size_t count = round->failures.cause_count +
                         round->failures.consequence_count;
    const uint8_t max = count < CT_FAILURES_MAX ? (uint8_t)count : CT_FAILURES_MAX;
    const size_t head = offsetof(struct ct_verdict, failures);
    struct ct_verdict *verdict = ct_zalloc(head + max * sizeof verdict->failures[0]);

    if (!verdict)
        return NULL;
    if (round->state == ROUND_CLOSED) {
        memcpy(verdict, &round->verdict, head);
    } else {
        verdict->generation = round->generation;
        verdict->more = failures_count_more(&round->failures);
    }
    verdict->failure_count = failures_copy(&round->failures, verdict->failures, max);
    return verdict;
}

static void append_verdict(struct batch *batch, const struct round *round)
{
    const bool is_made = round->state == ROUND_CLOSED &&
                         round->verdict.failure_count > 0;
    struct ct_verdict *own = is_made ? NULL : make_verdict(round);
    const struct ct_message message = {CT_MESSAGE_VERDICT,
                                       .verdict = is_made ? &round->verdict : own};

    if (batch->rc == 0)
        batch->rc = message.verdict ? ct_message_encode(batch->out, &message) : -ENOMEM;
    free(own);
}

/* STOP, and all failures of this world as a verdict would list them. */
static void add_trouble(struct batch *batch, const struct round *round)
{
    const size_t at = begin_record(batch, JOURNAL_TROUBLE);

    append_message(batch, CT_MESSAGE_STOP, &round->stop);
    append_verdict(batch, round);
    end_record(batch, at);
}

static void write_standing(struct ct_writer *out, const struct member *member)
{
    ct_write_u64(out, member->link.id);
    ct_write_u8(out, (uint8_t)member->state);
    ct_write_u8(out, member->is_survivor);
    ct_write_u8(out, member->is_asked);
    ct_write_u8(out, member->is_excluded);
}

static void add_member(struct batch *batch, const struct round *round,
                       const struct member *member)
{
    const size_t at = begin_record(batch, JOURNAL_MEMBER);
    uint8_t bytes[FIXED_MAX_BYTES];
    struct ct_start start;
    struct ct_writer out;

    ct_writer_init(&out, bytes, sizeof bytes);
    write_standing(&out, member);
    ct_write_u64(&out, member->link.key);
    ct_write_str(&out, member->link.host);
    ct_write_str(&out, member->link.seen_as);
    ct_write_str(&out, member->link.reached_at);
    append_fixed(batch, &out);
    append_message(batch, CT_MESSAGE_JOIN, &member->join);
    round_copy_start(&start, round, member);
    append_message(batch, CT_MESSAGE_START, &start);
    end_record(batch, at);
}

static void add_standing(struct batch *batch, const struct member *member)
{
    const size_t at = begin_record(batch, JOURNAL_STANDING);
    uint8_t bytes[FIXED_MAX_BYTES];
    struct ct_writer out;

    ct_writer_init(&out, bytes, sizeof bytes);
    write_standing(&out, member);
    append_fixed(batch, &out);
    end_record(batch, at);
}

static void begin(struct batch *batch, const char *run_id, unsigned flags)
{
    uint8_t bytes[CT_RUN_ID_MAX + 16];
    struct ct_writer out;

    ct_writer_init(&out, bytes, sizeof bytes);
    ct_write_u8(&out, JOURNAL_VERSION);
    ct_write_u8(&out, (uint8_t)flags);
    ct_write_str(&out, run_id);
    append_fixed(batch, &out);
}

/* ---- Batches ----------------------------------------------------------------------------- */

/* A member of the last world; newcomers come again by themselves (journal.h). */
static bool is_kept(const struct round *round, const struct member *member)
{
    return member->start.generation == round->generation &&
           member->state != MEMBER_LEFT;
}

/* Removes the record that begins at `at` if the journal has the same one already. */
static bool forget_same(struct batch *batch, size_t at, uint64_t *sum)
{
    struct ct_buf *out = batch->out;
    uint64_t now;

    if (batch->rc < 0)
        return false;
    now = ct_hash(ct_buf_data(out) + at, ct_buf_length(out) - at);
    if (now == *sum) {
        out->end = out->start + at;
        return true;
    }
    *sum = now;
    return false;
}

/* True if the world runs without a failure: round->stop is still that of the world before. */
static bool is_calm(const struct round *round)
{
    return round->state == ROUND_RUNNING && round->failures.cause_count == 0 &&
           round->failures.consequence_count == 0;
}

/* Adds a record only after a loss: most runs never have one. */
static void add_world(struct batch *batch, struct journal_mark *mark,
                      const struct round *round)
{
    const size_t at = ct_buf_length(batch->out);
    uint8_t bytes[4 + sizeof round->lost];
    struct ct_writer out;

    if (round->world.epoch == 0 && round->loss.losses == 0)
        return;
    ct_writer_init(&out, bytes, sizeof bytes);
    ct_write_u32(&out, round->loss.losses);
    ct_write_raw(&out, round->lost, sizeof round->lost);
    (void)begin_record(batch, JOURNAL_WORLD);
    append_message(batch, CT_MESSAGE_WORLD, &round->world);
    append_fixed(batch, &out);
    end_record(batch, at);
    (void)forget_same(batch, at, &mark->world_sum); /* fine either way */
}

/* Adds no record where no node is ever excluded. */
static void add_faults(struct batch *batch, struct journal_mark *mark,
                       const struct round *round)
{
    const size_t at = ct_buf_length(batch->out);
    uint8_t bytes[FIXED_MAX_BYTES];
    struct ct_writer out;

    if (round->settings.exclude_after == 0)
        return;
    (void)begin_record(batch, JOURNAL_FAULTS);
    ct_writer_init(&out, bytes, sizeof bytes);
    ct_write_u64(&out, round->settings.exclude_after);
    append_fixed(batch, &out);
    for (int i = 0; i < ROUND_FAULTS_MAX && round->faults[i].count > 0; i++) {
        ct_writer_init(&out, bytes, sizeof bytes);
        ct_write_str(&out, round->faults[i].host);
        ct_write_u32(&out, round->faults[i].count);
        ct_write_u8(&out, round->faults[i].is_out);
        append_fixed(batch, &out);
    }
    end_record(batch, at);
    (void)forget_same(batch, at, &mark->faults_sum); /* fine either way */
}

static void add_round(struct batch *batch, struct journal_mark *mark,
                      const struct round *round)
{
    size_t at = ct_buf_length(batch->out);

    add_state(batch, round);
    (void)forget_same(batch, at, &mark->state_sum); /* fine either way */
    add_world(batch, mark, round);
    add_faults(batch, mark, round);
    if (is_calm(round) && mark->calm_generation == round->generation)
        return; /* so for most heartbeats: do not write 5 KiB only to remove them */
    mark->calm_generation = is_calm(round) ? round->generation : 0;
    at = ct_buf_length(batch->out);
    add_trouble(batch, round);
    (void)forget_same(batch, at, &mark->trouble_sum);
}

/* Forgets the changes: a WHOLE batch has all of them, and before the first world nothing is
 * kept. */
static void forget_news(struct round *round)
{
    while (!ct_list_is_empty(&round->news))
        ct_list_remove(round->news.next);
}

static int finish(struct batch *batch, struct journal_mark *mark, int rc)
{
    if (batch->rc == 0) {
        mark->batch_sum = ct_hash(ct_buf_data(batch->out), ct_buf_length(batch->out));
        return rc;
    }
    mark->generation = 0; /* not known what the sink has: WHOLE batch next */
    batch->out->end = batch->out->start;
    return batch->rc;
}

/* A checksum of the limits, which change only by ctrunctl and are in WHOLE batches only. */
static uint64_t limits_of(const struct round *round)
{
    return (uint64_t)round->settings.min_nodes << 32 | round->settings.max_nodes;
}

int journal_note_whole(struct journal_mark *mark, const struct journal_run *run,
                       struct ct_buf *out)
{
    const struct round *round = run->round;
    struct batch batch = {.out = out};

    begin(&batch, run->id, JOURNAL_WHOLE);
    add_settings(&batch, run);
    if (round->world_reload > 0) /* changes only with a new world: a WHOLE batch */
        add_number(&batch, JOURNAL_RELOAD, round->world_reload);
    mark->state_sum = mark->trouble_sum = mark->world_sum = mark->faults_sum = 0;
    mark->calm_generation = 0;
    add_round(&batch, mark, round);
    for (size_t i = 0; i < round->members.count && batch.rc == 0; i++) {
        if (is_kept(round, round->members.list[i]))
            add_member(&batch, round, round->members.list[i]);
    }
    forget_news(run->round);
    mark->limits = limits_of(round);
    mark->is_kept = true;
    mark->generation = round->generation;
    mark->newcomers = round->newcomers;
    return finish(&batch, mark, 0);
}

static void add_removed(struct batch *batch, const struct round *round)
{
    for (size_t i = 0; i < round->action_count; i++) {
        if (round->actions[i].kind == ROUND_REMOVED)
            add_number(batch, JOURNAL_GONE, round->actions[i].id);
    }
}

static void add_news(struct batch *batch, struct round *round)
{
    while (!ct_list_is_empty(&round->news)) {
        struct member *member = ct_list_entry(round->news.next, struct member, news);

        ct_list_remove(&member->news);
        if (is_kept(round, member))
            add_standing(batch, member);
        else if (member->start.generation == round->generation)
            add_number(batch, JOURNAL_GONE, member->link.id);
    }
}

/* A batch with nothing but AFTER is removed again. */
static int note_changes(struct journal_mark *mark, const struct journal_run *run,
                        struct ct_buf *out)
{
    struct batch batch = {.out = out};
    size_t empty;

    begin(&batch, run->id, 0);
    add_number(&batch, JOURNAL_AFTER, mark->batch_sum);
    empty = ct_buf_length(out);
    add_removed(&batch, run->round);
    add_news(&batch, run->round);
    add_round(&batch, mark, run->round);
    if (batch.rc == 0 && ct_buf_length(out) == empty) {
        out->end = out->start;
        return 0;
    }
    return finish(&batch, mark, 1);
}

static bool is_forgotten(const struct round *round)
{
    return round->action_count > 0 &&
           round->actions[round->action_count - 1].kind == ROUND_FORGET;
}

int journal_note(struct journal_mark *mark, const struct journal_run *run,
                 struct ct_buf *out, unsigned *flags)
{
    const struct round *round = run->round;
    struct batch batch = {.out = out};
    int rc;

    *flags = 0;
    if (is_forgotten(round)) {
        if (!mark->is_kept)
            return 0;
        *flags = JOURNAL_END;
        *mark = (struct journal_mark){0};
        begin(&batch, run->id, JOURNAL_END);
        return finish(&batch, mark, 1);
    }
    if (round->generation == 0) {
        forget_news(run->round);
        return 0;
    }
    if (round->generation == mark->generation && limits_of(round) == mark->limits &&
        round->newcomers == mark->newcomers)
        return note_changes(mark, run, out);
    *flags = JOURNAL_WHOLE;
    rc = journal_note_whole(mark, run, out);
    return rc < 0 ? rc : 1;
}

/* ---- Frames ------------------------------------------------------------------------------ */

void journal_frame_encode(uint8_t head[JOURNAL_FRAME_BYTES], const uint8_t *batch,
                          size_t length)
{
    struct ct_writer out;

    ct_writer_init(&out, head, JOURNAL_FRAME_BYTES);
    ct_write_u32(&out, (uint32_t)length);
    ct_write_u64(&out, ct_hash(batch, length));
}

int64_t journal_frame_decode(const uint8_t *data, size_t length, const uint8_t **batch,
                             size_t *batch_length)
{
    struct ct_reader in;
    uint64_t sum;

    if (length < JOURNAL_FRAME_BYTES)
        return 0;
    ct_reader_init(&in, data, JOURNAL_FRAME_BYTES);
    *batch_length = ct_read_u32(&in);
    sum = ct_read_u64(&in);
    if (*batch_length == 0 || *batch_length > JOURNAL_BATCH_MAX_BYTES)
        return -EBADMSG;
    if (length - JOURNAL_FRAME_BYTES < *batch_length)
        return 0;
    *batch = data + JOURNAL_FRAME_BYTES;
    if (ct_hash(*batch, *batch_length) != sum)
        return -EBADMSG;
    return (int64_t)(JOURNAL_FRAME_BYTES + *batch_length);
}
