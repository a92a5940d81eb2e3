/* SPDX-License-Identifier: Apache-2.0 */
/* Members that send any message that the wire allows, in any order. The invariants of the round
 * (its assertions) hold, and the round can be restored from the journal. After the settings an
 * input is steps: u8 kind of command, u8 member, u16 milliseconds that pass; for MESSAGE and RESUME
 * also u8 kind of message, u16 length, body. */
#include "rendezvous/journal/journal.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MEMBERS_MAX = 16
};

struct rig {
    struct ct_reader in;
    struct round *round;
    struct journal_book book;
    struct journal_mark mark;
    uint64_t now_ms;
    uint64_t last_id;
};

/* Returns false once the round is forgotten. */
static bool step(struct rig *rig, const struct round_command *command)
{
    const struct journal_run run = {"run", 1000, rig->round};
    struct ct_buf batch;
    unsigned flags;
    int rc;

    (void)round_step(rig->round, command, rig->now_ms);
    ct_buf_init(&batch, JOURNAL_BATCH_MAX_BYTES);
    rc = journal_note(&rig->mark, &run, &batch, &flags);
    if (rc < 0 || (rc > 0 && journal_book_add(&rig->book, ct_buf_data(&batch),
                                              ct_buf_length(&batch)) < 0))
        abort();
    ct_buf_deinit(&batch);
    return rig->round->action_count == 0 ||
           rig->round->actions[rig->round->action_count - 1].kind != ROUND_FORGET;
}

static struct member_link link_of(uint64_t id, void *peer)
{
    struct member_link link = {.id = id, .key = id, .peer = peer};

    (void)ct_format(link.host, sizeof link.host, "n%d", (int)(id % 5));
    (void)ct_format(link.seen_as, sizeof link.seen_as, "10.0.0.%d", (int)(id % 5));
    return link;
}

static bool take_message(struct ct_reader *in, struct ct_message *out)
{
    static union ct_message_room room;
    struct ct_frame frame = {.version = CT_FRAME_VERSION, .kind = ct_read_u8(in)};

    frame.length = ct_read_u16(in);
    frame.body = ct_read_raw(in, frame.length);
    return frame.body && ct_message_decode(&frame, out, &room, sizeof room) == 0;
}

static bool has_connection(const struct rig *rig, uint64_t id)
{
    const struct member *member = member_find(&rig->round->members, id);

    return member && !member->is_away;
}

/* Commands that the server would give: a member without a connection sends nothing, and only one
 * that resumes sends RESUME. */
static bool is_possible(const struct rig *rig, const struct round_command *command)
{
    switch (command->kind) {
    case ROUND_MESSAGE: return has_connection(rig, command->id);
    case ROUND_GONE:
    case ROUND_DIRECT: return has_connection(rig, command->id);
    case ROUND_RESUME: return command->message->kind == CT_MESSAGE_RESUME;
    case ROUND_ADD: return rig->round->members.count < MEMBERS_MAX;
    case ROUND_TICK: return true;
    case ROUND_PAUSED:
    case ROUND_SILENT: break;
    }
    return false;
}

static bool answer_unsure(struct rig *rig, bool is_paused)
{
    const struct member *unsure;
    bool is_there = true;

    while (is_there && (unsure = round_find_unsure(rig->round)))
        is_there = step(rig, &(struct round_command){.kind = is_paused ? ROUND_PAUSED
                                                                       : ROUND_SILENT,
                                                     .id = unsure->link.id});
    return is_there;
}

static bool take_step(struct rig *rig)
{
    const uint8_t op = ct_read_u8(&rig->in), who = ct_read_u8(&rig->in);
    const struct member_table *members = &rig->round->members;
    struct member_link link;
    struct ct_message message = {0};
    struct round_command command = {.kind = rig->last_id == 0 ? ROUND_ADD : op & 7,
                                    .link = &link,
                                    .message = &message};

    rig->now_ms += ct_read_u16(&rig->in);
    if (rig->in.bad)
        return false;
    if (command.kind == ROUND_ADD)
        command.id = rig->last_id + 1;
    else if (members->count > 0)
        command.id = members->list[who % members->count]->link.id;
    command.reason = "broken";
    command.is_owed = op & 8;
    link = link_of(command.id, rig);
    link.serves = op & 16;
    if (command.kind == ROUND_TICK && round_next_ms(rig->round) < UINT64_MAX / 2)
        rig->now_ms = round_next_ms(rig->round) > rig->now_ms
                          ? round_next_ms(rig->round)
                          : rig->now_ms;
    if ((command.kind == ROUND_MESSAGE || command.kind == ROUND_RESUME) &&
        !take_message(&rig->in, &message))
        return !rig->in.bad;
    if (!is_possible(rig, &command))
        return true;
    rig->last_id += command.kind == ROUND_ADD;
    return step(rig, &command) && answer_unsure(rig, op & 32);
}

static int create(struct rig *rig)
{
    struct round_settings settings = {.max_restarts = 2,
                                      .join_timeout_ms = 60000,
                                      .last_call_ms = 1000,
                                      .lost_after_ms = 5000,
                                      .instance = 7};
    const uint8_t bits = ct_read_u8(&rig->in);

    settings.min_nodes = 1 + (bits & 3);
    settings.max_nodes = settings.min_nodes + (bits >> 2 & 3);
    settings.exclude_after = bits >> 4 & 1;
    settings.is_kept = bits >> 5 & 1;
    settings.pause_ms = bits & 64 ? 30000 : 0;
    settings.node_unit = bits >> 7;
    return round_create(&rig->round, &settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rig rig = {.now_ms = 1000};

    ct_reader_init(&rig.in, data, size);
    if (create(&rig) < 0)
        return 0;
    journal_book_init(&rig.book);
    while (take_step(&rig))
        ;
    if (journal_book_restore(&rig.book, rig.now_ms, rig.now_ms) > 0)
        abort();
    journal_book_deinit(&rig.book);
    round_destroy(rig.round);
    return 0;
}
