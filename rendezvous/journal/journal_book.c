/* SPDX-License-Identifier: Apache-2.0 */
/* Reading: makes rounds of batches. The bytes are not trusted: numbers are checked here, and
 * round_restore() checks the state of a round. */
#include <errno.h>

#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/journal_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/role.h"

void journal_book_init(struct journal_book *book)
{
    ct_list_init(&book->entries);
    book->last_id = 0;
    book->has_past = false;
}

static void drop(struct journal_entry *entry)
{
    ct_list_remove(&entry->node);
    round_destroy(entry->round);
    free(entry);
}

void journal_book_deinit(struct journal_book *book)
{
    ct_list_for_each_safe(struct journal_entry, entry, &book->entries, node)
        drop(entry);
}

static struct journal_entry *find(const struct journal_book *book, const char *id)
{
    ct_list_for_each(struct journal_entry, entry, &book->entries, node) {
        if (strcmp(entry->id, id) == 0)
            return entry;
    }
    return NULL;
}

/* ---- Fields ------------------------------------------------------------------------------ */

/* Reads the body of the next message, which must be of this kind. */
static int read_message(struct ct_reader *in, enum ct_message_kind kind, void *body,
                        size_t size)
{
    struct ct_message message;
    struct ct_frame frame;
    const int taken = in->bad ? -EBADMSG : ct_frame_decode(in->next, in->left, &frame);

    if (taken <= 0 || frame.version != CT_FRAME_VERSION || frame.kind != (uint8_t)kind)
        return -EBADMSG;
    (void)ct_read_raw(in, (size_t)taken); /* not missing any more */
    return ct_message_decode(&frame, &message, body, size) == 0 ? 0 : -EBADMSG;
}

static bool read_bool(struct ct_reader *in)
{
    const uint8_t value = ct_read_u8(in);

    in->bad |= value > 1;
    return value == 1;
}

/* Comes once and first: all other records need the round that this one creates. */
static int read_settings(struct journal_entry *entry, struct ct_reader *in)
{
    struct round_settings settings = {0};

    settings.min_nodes = ct_read_u32(in);
    settings.max_nodes = ct_read_u32(in);
    settings.max_restarts = ct_read_u32(in);
    settings.join_timeout_ms = ct_read_u64(in);
    settings.last_call_ms = ct_read_u64(in);
    settings.lost_after_ms = ct_read_u64(in);
    settings.pause_ms = ct_read_u64(in);
    settings.node_unit = ct_read_u32(in);
    settings.endpoint_port = ct_read_u16(in);
    entry->heartbeat_ms = ct_read_u64(in);
    settings.instance = ct_read_u64(in);
    if (ct_read_end(in) < 0 || entry->heartbeat_ms == 0 || entry->round)
        return -EBADMSG;
    return round_create(&entry->round, &settings) == -ENOMEM ? -ENOMEM
           : entry->round                                    ? 0
                                                             : -EBADMSG;
}

static int read_state(struct round *round, struct ct_reader *in)
{
    const uint8_t state = ct_read_u8(in);

    in->bad |= state > ROUND_CLOSED;
    round->state = (enum round_state)state;
    round->generation = ct_read_u64(in);
    round->floor = ct_read_u64(in);
    round->restart_count = ct_read_u32(in);
    round->world_count = ct_read_u32(in);
    round->lost_count = ct_read_u64(in);
    round->is_undecided = read_bool(in);
    round->is_finishing = read_bool(in);
    round->has_fingerprint = read_bool(in);
    round->fingerprint = ct_read_u64(in);
    round->outcome = ct_read_u8(in);
    round->exit_code = ct_read_u8(in);
    round->crash_loop.cause = ct_read_u8(in);
    round->crash_loop.code = (int32_t)ct_read_u32(in);
    round->crash_loop.step = ct_read_i64(in);
    round->crash_loop.line = ct_read_u64(in);
    round->culprit_id = ct_read_u64(in);
    return ct_read_end(in);
}

/* Restores the list of failures from that of the verdict: the list is not written twice. */
static int read_trouble(struct round *round, struct ct_reader *in)
{
    const struct ct_verdict *verdict = &round->verdict;

    if (read_message(in, CT_MESSAGE_STOP, &round->stop, sizeof round->stop) < 0 ||
        read_message(in, CT_MESSAGE_VERDICT, &round->verdict, sizeof round->verdict) <
            0)
        return -EBADMSG;
    failures_clear(&round->failures);
    for (uint8_t i = 0; i < verdict->failure_count; i++)
        failures_add(&round->failures, &verdict->failures[i]);
    failures_add_more(&round->failures, &verdict->more);
    return ct_read_end(in);
}

static int read_world(struct round *round, struct ct_reader *in)
{
    const uint8_t *lost;

    if (read_message(in, CT_MESSAGE_WORLD, &round->world, sizeof round->world) < 0)
        return -EBADMSG;
    round->loss = (struct ct_loss){.generation = round->world.generation,
                                   .losses = ct_read_u32(in),
                                   .rank = -1,
                                   .text = "a rank is lost"};
    if (!(lost = ct_read_raw(in, sizeof round->lost)))
        return -EBADMSG;
    memcpy(round->lost, lost, sizeof round->lost);
    return ct_read_end(in);
}

static int read_reload(struct round *round, struct ct_reader *in)
{
    round->world_reload = ct_read_u64(in);
    return ct_read_end(in);
}

static int read_faults(struct round *round, struct ct_reader *in)
{
    memset(round->faults, 0, sizeof round->faults);
    round->settings.exclude_after = ct_read_u64(in);
    for (int i = 0; i < ROUND_FAULTS_MAX && in->left > 0; i++) {
        struct round_fault *fault = &round->faults[i];

        ct_read_str(in, fault->host, sizeof fault->host);
        fault->count = ct_read_u32(in);
        fault->is_out = read_bool(in);
    }
    return ct_read_end(in);
}

struct standing {
    uint64_t id;
    uint8_t state;
    bool is_survivor;
    bool is_asked;
    bool is_excluded;
};

static struct standing read_standing(struct ct_reader *in)
{
    struct standing standing;

    standing.id = ct_read_u64(in);
    standing.state = ct_read_u8(in);
    standing.is_survivor = read_bool(in);
    standing.is_asked = read_bool(in);
    standing.is_excluded = read_bool(in);
    in->bad |= standing.state > MEMBER_LEFT;
    return standing;
}

static void set_standing(struct member *member, const struct standing *standing)
{
    member->state = (enum member_state)standing->state;
    member->is_survivor = standing->is_survivor;
    member->is_asked = standing->is_asked;
    member->is_excluded = standing->is_excluded;
}

/* ROUND_ADD reserves what later steps need. */
static struct member *add_member(struct round *round, const struct member_link *link)
{
    const struct member_table *table = &round->members;

    if (table->count > 0 && table->list[table->count - 1]->link.id >= link->id)
        return NULL; /* ids must grow */
    if (round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = link}, 0) <
        0)
        return NULL;
    return table->list[table->count - 1];
}

/* Checks what round_restore() does not check: the roles must fit the workers, or a later START
 * would read past the end. */
static int read_member(struct journal_book *book, struct round *round,
                       struct ct_reader *in)
{
    struct standing standing = read_standing(in);
    struct member_link link = {.id = standing.id};
    const struct ct_join *join;
    struct ct_start start;
    struct member *member;

    link.key = ct_read_u64(in);
    ct_read_str(in, link.host, sizeof link.host);
    ct_read_str(in, link.seen_as, sizeof link.seen_as);
    ct_read_str(in, link.reached_at, sizeof link.reached_at);
    if (in->bad || !(member = add_member(round, &link)))
        return -EBADMSG;
    join = &member->join;
    if (read_message(in, CT_MESSAGE_JOIN, &member->join, sizeof member->join) < 0 ||
        read_message(in, CT_MESSAGE_START, &start, sizeof start) < 0 ||
        ct_read_end(in) < 0 || join->slots < 1 ||
        !ct_role_list_is_sound(&join->roles, join->slots) ||
        start.role_count > join->roles.count)
        return -EBADMSG;
    round_set_start(round, member, &start);
    set_standing(member, &standing);
    if (link.id > book->last_id)
        book->last_id = link.id;
    return 0;
}

static int change_member(struct round *round, struct ct_reader *in)
{
    struct standing standing = read_standing(in);
    struct member *member = member_find(&round->members, standing.id);

    if (ct_read_end(in) < 0 || !member)
        return -EBADMSG;
    set_standing(member, &standing);
    return 0;
}

/* Checks the checksum of the batch before. If a batch between is lost, the result would be a state
 * that the run never had. */
static int check_after(const struct journal_entry *entry, struct ct_reader *in)
{
    const uint64_t sum = ct_read_u64(in);

    return ct_read_end(in) < 0 || sum != entry->batch_sum ? -EBADMSG : 0;
}

static int remove_member(struct round *round, struct ct_reader *in)
{
    uint64_t id = ct_read_u64(in);

    member_remove(&round->members,
                  id); /* only members of a world are kept in the journal */
    return ct_read_end(in);
}

/* ---- Batches ----------------------------------------------------------------------------- */

static int read_record(struct journal_book *book, struct journal_entry *entry,
                       uint8_t kind, struct ct_reader *in)
{
    if (!entry->round && kind != JOURNAL_SETTINGS)
        return -EBADMSG;
    switch (kind) {
    case JOURNAL_SETTINGS: return read_settings(entry, in);
    case JOURNAL_STATE: return read_state(entry->round, in);
    case JOURNAL_TROUBLE: return read_trouble(entry->round, in);
    case JOURNAL_WORLD: return read_world(entry->round, in);
    case JOURNAL_RELOAD: return read_reload(entry->round, in);
    case JOURNAL_FAULTS: return read_faults(entry->round, in);
    case JOURNAL_MEMBER: return read_member(book, entry->round, in);
    case JOURNAL_STANDING: return change_member(entry->round, in);
    case JOURNAL_GONE: return remove_member(entry->round, in);
    case JOURNAL_AFTER: return check_after(entry, in);
    default: return 0; /* a kind of a newer server */
    }
}

static int read_records(struct journal_book *book, struct journal_entry *entry,
                        struct ct_reader *in)
{
    while (in->left > 0 && !in->bad) {
        const uint8_t kind = ct_read_u8(in);
        size_t length;
        const uint8_t *body = ct_read_blob(in, in->left, &length);
        struct ct_reader record;
        int rc;

        if (!body)
            return -EBADMSG;
        ct_reader_init(&record, body, length);
        if ((rc = read_record(book, entry, kind, &record)) < 0)
            return rc;
    }
    return in->bad || !entry->round ? -EBADMSG : 0;
}

static int read_head(struct ct_reader *in, unsigned *flags, char run_id[CT_RUN_ID_MAX])
{
    const uint8_t version = ct_read_u8(in);

    *flags = ct_read_u8(in);
    ct_read_str(in, run_id, CT_RUN_ID_MAX);
    return in->bad || version != JOURNAL_VERSION ? -EBADMSG : 0;
}

int journal_look(const uint8_t *batch, size_t length, unsigned *flags,
                 char run_id[CT_RUN_ID_MAX])
{
    struct ct_reader in;

    ct_reader_init(&in, batch, length);
    return read_head(&in, flags, run_id);
}

static struct journal_entry *create(struct journal_book *book, const char *run_id)
{
    struct journal_entry *entry = ct_zalloc(sizeof *entry);

    if (!entry)
        return NULL;
    (void)ct_copy(entry->id, sizeof entry->id, run_id); /* same size */
    ct_list_add(&book->entries, &entry->node);
    return entry;
}

/* A batch that does not fit removes the entry of its run only: one file has batches of several
 * runs. */
int journal_book_add(struct journal_book *book, const uint8_t *batch, size_t length)
{
    char run_id[CT_RUN_ID_MAX];
    struct journal_entry *entry;
    struct ct_reader in;
    unsigned flags;
    int rc;

    ct_reader_init(&in, batch, length);
    if (read_head(&in, &flags, run_id) < 0)
        return -EBADMSG;
    entry = find(book, run_id);
    if ((flags & (JOURNAL_WHOLE | JOURNAL_END)) && entry) {
        drop(entry);
        entry = NULL;
    }
    if (flags & JOURNAL_END)
        return ct_read_end(&in);
    if (!entry && !(flags & JOURNAL_WHOLE))
        return -EBADMSG; /* the first batch of the run is missing */
    if (!entry && !(entry = create(book, run_id)))
        return -ENOMEM;
    if ((rc = read_records(book, entry, &in)) < 0)
        drop(entry);
    else
        entry->batch_sum = ct_hash(batch, length);
    return rc;
}

/* True if no member waits for the verdict any more: only the END is missing. */
static bool is_over(const struct round *round)
{
    return round->state == ROUND_CLOSED && round->members.count == 0;
}

size_t journal_book_restore(struct journal_book *book, uint64_t served_ms,
                            uint64_t now_ms)
{
    size_t dropped = 0;

    ct_list_for_each_safe(struct journal_entry, entry, &book->entries, node) {
        if (is_over(entry->round)) {
            drop(entry);
        } else if (round_restore(entry->round, served_ms, now_ms) < 0) {
            drop(entry);
            dropped++;
        }
    }
    return dropped;
}
