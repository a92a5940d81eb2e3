/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BEAT_MS = 1000,
    FENCE_BEFORE_MS = 1000, /* agents give up this long before their lease ends */
    DELAY_MAX_MS = 40,      /* of one message */
    STOP_MAX_MS = 800,      /* until workers have ended */
    BACK_MS = 700,          /* until a node connects again */
    RESUME_MS = 250,        /* between attempts to resume, at most */
    DOWN_MS = 300,          /* between attempts to connect while the server is down */
    GAP_MAX = 4,            /* batches of the journal that a power cut loses */
};

enum event_kind {
    EVENT_CONNECT,
    EVENT_FAULT,
    EVENT_UP,   /* a message reaches the server */
    EVENT_DOWN, /* a message reaches the node */
    EVENT_GONE, /* the server sees that the connection has ended */
    EVENT_TICK,
    EVENT_BEAT,
    EVENT_SUCCESS,
    EVENT_STOPPED, /* the node's workers have ended */
    EVENT_VOICE,   /* a silence (SIM_SILENCE) ends */
    EVENT_CUT_OFF, /* the workers of a node without a server have ended */
    EVENT_GUARD,   /* the guard of a paused agent checks the page */
    EVENT_RESUME,
    EVENT_TRY,     /* a node tries to resume its membership */
    EVENT_RESTART, /* the server starts again */
};

/* In place of a kind: the server closes the connection. */
#define NOTE_END ((enum ct_message_kind)0)

/* The members of a message that agents read here. */
struct note {
    enum ct_message_kind kind;
    uint64_t generation;
    int64_t code;
    uint64_t
        happened_ms; /* FAILURE, and a fault that a paused agent has not seen yet */
    uint64_t age_ms; /* FAILURE: its age when it was sent; 0: not known */
    struct ct_start start;
    struct ct_resumed resumed;
    uint64_t world;
    struct ct_stop *stop;       /* owned by the event */
    struct ct_verdict *verdict; /* owned by the event */
    bool flag;
};

struct sim_event {
    uint64_t at_ms;
    uint64_t sequence;
    enum event_kind kind;
    size_t node;
    uint64_t id;     /* of its connection */
    bool is_at_host; /* DOWN, UP: the host of a paused receiver has it */
    struct note note;
};

/* The server's end of a connection; a member's link points to it. */
struct sim_conn {
    struct sim_node *node;
    uint64_t id;
    uint64_t member; /* 0: of no member any more */
};

static void die(const struct sim *sim, const char *what)
{
    fprintf(stderr, "sim: %s at %llu ms; replay with CTRUN_SIM_SEED=%llu\n", what,
            (unsigned long long)sim->now_ms, (unsigned long long)sim->seed);
    abort();
}

uint64_t sim_random(struct sim *sim, uint64_t below)
{
    /* xorshift64*, Vigna 2016 */
    sim->random ^= sim->random >> 12;
    sim->random ^= sim->random << 25;
    sim->random ^= sim->random >> 27;
    return sim->random * 0x2545F4914F6CDD1DULL % below;
}

/* ---- Heap -------------------------------------------------------------------------------- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->sequence < b->sequence;
}

static void swap(struct sim_event *a, struct sim_event *b)
{
    struct sim_event keep = *a;

    *a = *b;
    *b = keep;
}

static void add_event(struct sim *sim, struct sim_event event)
{
    size_t i = sim->event_count++;

    if (sim->event_count > sim->event_capacity) {
        sim->event_capacity = sim->event_capacity ? 2 * sim->event_capacity : 256;
        sim->events = realloc(sim->events, sim->event_capacity * sizeof *sim->events);
        if (!sim->events)
            die(sim, "out of memory");
    }
    event.sequence = ++sim->sequence;
    sim->events[i] = event;
    for (; i > 0 && is_before(&sim->events[i], &sim->events[(i - 1) / 2]);
         i = (i - 1) / 2)
        swap(&sim->events[i], &sim->events[(i - 1) / 2]);
}

static struct sim_event take_event(struct sim *sim)
{
    struct sim_event first = sim->events[0];
    size_t i = 0, child;

    sim->events[0] = sim->events[--sim->event_count];
    while ((child = 2 * i + 1) < sim->event_count) {
        if (child + 1 < sim->event_count &&
            is_before(&sim->events[child + 1], &sim->events[child]))
            child++;
        if (!is_before(&sim->events[child], &sim->events[i]))
            break;
        swap(&sim->events[i], &sim->events[child]);
        i = child;
    }
    return first;
}

static void later(struct sim *sim, uint64_t delay_ms, struct sim_node *node,
                  enum event_kind kind, uint64_t generation)
{
    add_event(sim, (struct sim_event){.at_ms = sim->now_ms + delay_ms,
                                      .kind = kind,
                                      .node = node->index,
                                      .id = node->id,
                                      .note.generation = generation});
}

/* ---- Links ------------------------------------------------------------------------------- */

/* Messages of one direction keep their order. */
static uint64_t arrival(struct sim *sim, uint64_t *last_ms)
{
    uint64_t at_ms = sim->now_ms + 1 + sim_random(sim, DELAY_MAX_MS);

    *last_ms = at_ms > *last_ms ? at_ms : *last_ms;
    return *last_ms;
}

/* What an agent sends as the age of its failure; an older agent sends none. */
static uint64_t age_of(const struct sim *sim, const struct sim_node *node)
{
    const uint64_t age_ms = sim->now_ms - node->failed_ms;

    return node->tells_no_age ? 0 : age_ms > 0 ? age_ms : 1;
}

static void send_up(struct sim *sim, struct sim_node *node, struct note note)
{
    if (node->id == 0 || node->is_silent)
        return;
    sim->messages_up++;
    add_event(sim, (struct sim_event){.at_ms = arrival(sim, &node->up_ms),
                                      .kind = EVENT_UP,
                                      .node = node->index,
                                      .id = node->id,
                                      .note = note});
}

static void close_link(struct sim *sim, struct sim_node *node)
{
    if (node->id != 0 && !node->is_silent)
        add_event(sim, (struct sim_event){.at_ms = arrival(sim, &node->up_ms),
                                          .kind = EVENT_GONE,
                                          .node = node->index,
                                          .id = node->id});
    node->id = 0;
}

/* Members' links hold numbers of connections, not pointers, because the array may move. */
static struct sim_conn *open_conn(struct sim *sim, struct sim_node *node,
                                  uint64_t member)
{
    struct sim_conn *conn;

    if (sim->conn_count == sim->conn_capacity) {
        sim->conn_capacity = sim->conn_capacity ? 2 * sim->conn_capacity : 64;
        sim->conns = realloc(sim->conns, sim->conn_capacity * sizeof *sim->conns);
        if (!sim->conns)
            die(sim, "out of memory");
    }
    conn = &sim->conns[sim->conn_count++];
    *conn = (struct sim_conn){.node = node, .id = sim->conn_count, .member = member};
    return conn;
}

static struct sim_conn *find_conn(const struct sim *sim, const void *peer)
{
    return peer ? &sim->conns[(uintptr_t)peer - 1] : NULL;
}

static void *peer_of(const struct sim_conn *conn)
{
    return (void *)(uintptr_t)conn->id;
}

/* ---- Server ------------------------------------------------------------------------------ */

/* All STARTs of one step are of one world: ranks without gaps, equal settings, a new generation. */
static void check_world(struct sim *sim)
{
    const struct round *round = sim->round;
    uint32_t ranks = 0, world_size = 0, n = 0;
    bool *seen = calloc(sim->node_count + 1, sizeof *seen);
    uint32_t *base = calloc(sim->node_count + 1, sizeof *base);
    uint32_t *slots = calloc(sim->node_count + 1, sizeof *slots);
    struct ct_start told, one = {0};
    const struct ct_start *start = &told, *first = NULL;
    bool is_new = false; /* false: a START is sent again, to an agent that resumed */

    for (size_t i = 0; i < round->action_count; i++) {
        is_new |= round->actions[i].kind == ROUND_CHANGED &&
                  round->actions[i].to == ROUND_RUNNING;
    }
    for (size_t i = 0; i < round->action_count && is_new; i++) {
        const struct member *member;

        if (round->actions[i].kind != ROUND_SEND_START)
            continue;
        member = member_find(&round->members, round->actions[i].id);
        round_copy_start(&told, round, member);
        if (!first)
            one = told;
        first = &one;
        n++;
        if (start->group_rank >= sim->node_count || seen[start->group_rank])
            die(sim, "a group rank twice, or one START too many");
        seen[start->group_rank] = true;
        base[start->group_rank] = start->rank_base;
        slots[start->group_rank] = member->join.slots;
        world_size = start->world_size;
        if (start->generation != round->generation ||
            strcmp(start->master_addr, first->master_addr) != 0 ||
            start->master_port != first->master_port ||
            start->world_size != first->world_size ||
            start->restart_count != first->restart_count)
            die(sim, "the members of a world were told different things");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!seen[i] || base[i] != ranks)
            die(sim, "ranks are not dense");
        ranks += slots[i];
    }
    if (n > 0 && (ranks != world_size || first->group_world_size != n ||
                  n < round->settings.min_nodes || n > round->settings.max_nodes ||
                  (round->settings.node_unit > 1 && n % round->settings.node_unit)))
        die(sim, "a world of the wrong size");
    if (n > 0 && !sim->has_gap && is_new && round->generation <= sim->last_generation)
        die(sim, "a generation that did not grow");
    if (n > 0 && is_new && !sim->has_gap &&
        sim->free_generation == sim->last_generation && sim->last_generation > 0 &&
        first->restart_count != sim->restart_count)
        die(sim, "the consequence of a loss cost a restart");
    if (n > 0 && is_new && !sim->has_gap &&
        first->restart_count > sim->restart_count + 1)
        die(sim, "one world cost two restarts");
    if (n > 0 && is_new) {
        sim->world++;
        sim->restart_count = first->restart_count;
        sim->last_generation = round->generation;
        sim->last_start_ms = sim->now_ms;
        if (sim->first_start_ms == 0)
            sim->first_start_ms = sim->now_ms;
    }
    free(seen);
    free(base);
    free(slots);
}

static struct note describe(struct sim *sim, const struct round_action *action)
{
    const struct round *round = sim->round;
    const struct member *member;
    struct note note = {0};

    switch (action->kind) {
    case ROUND_SEND_START:
        note.kind = CT_MESSAGE_START;
        if ((member = member_find(&round->members, action->id)))
            round_copy_start(&note.start, round, member);
        note.world = sim->world;
        break;
    case ROUND_SEND_STOP:
        note.kind = CT_MESSAGE_STOP;
        note.stop = malloc(sizeof *note.stop);
        *note.stop = round->stop;
        break;
    case ROUND_SEND_VERDICT:
        note.kind = CT_MESSAGE_VERDICT;
        note.verdict = malloc(sizeof *note.verdict);
        *note.verdict = round->verdict;
        break;
    case ROUND_SEND_WAITING:
        note.kind = CT_MESSAGE_WAITING;
        note.flag = round->waiting.is_spare;
        break;
    case ROUND_SEND_REFUSE:
        note.kind = CT_MESSAGE_REFUSE;
        note.code = round->refuse.code;
        break;
    case ROUND_DROP: note.kind = NOTE_END; break; /* see receive() */
    case ROUND_SEND_RESIZE: note.kind = CT_MESSAGE_RESIZE; break;
    case ROUND_SEND_DRAIN: note.kind = CT_MESSAGE_DRAIN; break;
    case ROUND_SEND_LOSS: /* no story here has --survive */
    case ROUND_SEND_WORLD:
    case ROUND_SEND_GROW:
    case ROUND_SEND_MEMBERS:
    case ROUND_SEND_REACHABILITY: /* nodes here have one address */
    case ROUND_SEND_OFFER:
    case ROUND_SEND_RELOAD:
    case ROUND_SEND_RELOADED:
    case ROUND_SEND_RESTART:
    case ROUND_SEND_DRAINED: break; /* no story here asks for the answer */
    case ROUND_SEND_RESUMED:
        note.kind = CT_MESSAGE_RESUMED;
        note.resumed = round->resumed;
        break;
    case ROUND_SEND_PEER: note.kind = CT_MESSAGE_PEER; break;
    case ROUND_CHANGED:
    case ROUND_REMOVED:
    case ROUND_FORGET: break;
    }
    return note;
}

static void send_down(struct sim *sim, const struct sim_conn *conn, struct note note)
{
    struct sim_node *node = conn->node;

    if (node->id == conn->id)
        node->unacknowledged++;
    if (node->is_silent || node->id != conn->id) {
        free(note.stop);
        free(note.verdict);
        return;
    }
    sim->messages_down++;
    add_event(sim, (struct sim_event){.at_ms = arrival(sim, &node->down_ms),
                                      .kind = EVENT_DOWN,
                                      .node = node->index,
                                      .id = conn->id,
                                      .note = note});
}

/* ---- Journal ----------------------------------------------------------------------------- */

static void drop_batches(struct sim *sim, size_t keep)
{
    while (sim->batch_count > keep)
        ct_buf_deinit(&sim->batches[--sim->batch_count]);
}

static void keep(struct sim *sim)
{
    const struct journal_run run = {
        .id = "sim", .heartbeat_ms = BEAT_MS, .round = sim->round};
    struct ct_buf batch;
    unsigned flags;
    int rc;

    ct_buf_init(&batch, JOURNAL_BATCH_MAX_BYTES);
    if ((rc = journal_note(&sim->mark, &run, &batch, &flags)) < 0)
        die(sim, "the journal cannot be written");
    if (rc == 0) {
        ct_buf_deinit(&batch);
        return;
    }
    if (flags & (JOURNAL_WHOLE | JOURNAL_END))
        drop_batches(sim, 0);
    if (sim->batch_count == sim->batch_capacity) {
        sim->batch_capacity = sim->batch_capacity ? 2 * sim->batch_capacity : 16;
        sim->batches = realloc(sim->batches,
                               sim->batch_capacity * sizeof *sim->batches);
        if (!sim->batches)
            die(sim, "out of memory");
    }
    sim->batches[sim->batch_count++] = batch;
}

static void restore(struct sim *sim)
{
    struct journal_book book;

    journal_book_init(&book);
    for (size_t i = 0; i < sim->batch_count; i++) {
        if (journal_book_add(&book, ct_buf_data(&sim->batches[i]),
                             ct_buf_length(&sim->batches[i])) < 0)
            die(sim, "the journal cannot be read");
    }
    if (journal_book_restore(&book, sim->now_ms, sim->now_ms) > 0)
        die(sim, "the journal cannot be restored");
    sim->mark = (struct journal_mark){0};
    if (!ct_list_is_empty(&book.entries)) {
        struct journal_entry *entry = ct_list_entry(book.entries.next,
                                                    struct journal_entry, node);

        sim->round = entry->round;
        entry->round = NULL;
        sim->mark.is_kept = true;
    }
    journal_book_deinit(&book);
}

static void schedule_tick(struct sim *sim)
{
    uint64_t next_ms = round_next_ms(sim->round);

    if (next_ms >= sim->tick_ms)
        return;
    sim->tick_ms = next_ms;
    add_event(sim,
              (struct sim_event){.at_ms = next_ms > sim->now_ms ? next_ms : sim->now_ms,
                                 .kind = EVENT_TICK});
}

static void execute(struct sim *sim)
{
    for (size_t i = 0; i < sim->round->action_count; i++) {
        const struct round_action *action = &sim->round->actions[i];
        struct sim_conn *conn = find_conn(sim, action->peer);

        if (!conn || action->kind == ROUND_CHANGED || action->kind == ROUND_REMOVED)
            continue;
        send_down(sim, conn, describe(sim, action));
        if (action->kind == ROUND_DROP || action->kind == ROUND_SEND_REFUSE)
            conn->member = 0;
    }
}

static int take_command(struct sim *sim, const struct round_command *command)
{
    const struct round *round = sim->round;
    int rc;

    if (!round)
        return -ENOENT;
    rc = round_step(sim->round, command, sim->now_ms);
    if (rc == -ENOMEM)
        die(sim, "out of memory");
    check_world(sim);
    keep(sim);
    execute(sim);
    if (round->action_count > 0 &&
        round->actions[round->action_count - 1].kind == ROUND_FORGET) {
        round_destroy(sim->round);
        sim->round = NULL;
        sim->tick_ms = UINT64_MAX;
        sim->was_forgotten = true;
    }
    return rc;
}

static const struct sim_node *node_of(const struct sim *sim,
                                      const struct member *member)
{
    return &sim->nodes[strtoul(member->link.host + 1, NULL, 10)];
}

/* Whether the member's kernel has acknowledged the PEER; the acknowledgement may be lost, too. */
static bool is_acknowledged(struct sim *sim, const struct member *member)
{
    const struct sim_node *node = node_of(sim, member);
    const struct sim_conn *conn = find_conn(sim, member->link.peer);

    return conn && node->id == conn->id && node->unacknowledged == 0 &&
           !(node->is_silent && sim_random(sim, 2));
}

static int step(struct sim *sim, const struct round_command *command)
{
    const struct member *unsure;
    int rc = take_command(sim, command);

    while (sim->round && (unsure = round_find_unsure(sim->round)))
        (void)take_command(
            sim, &(struct round_command){
                     .kind = is_acknowledged(sim, unsure) ? ROUND_PAUSED : ROUND_SILENT,
                     .id = unsure->link.id});
    if (sim->round)
        schedule_tick(sim);
    return rc;
}

/* ---- Agent ------------------------------------------------------------------------------- */

static void set_alive(struct sim *sim, struct sim_node *node, uint64_t generation,
                      uint64_t world)
{
    if (node->alive)
        sim->alive_count--;
    node->alive = generation;
    if (!generation)
        return;
    if (sim->alive_count > 0 && sim->alive_world != world)
        die(sim, "two live worlds");
    sim->alive_world = world;
    sim->alive_count++;
}

static void join(struct sim *sim, struct sim_node *node)
{
    send_up(sim, node, (struct note){.kind = CT_MESSAGE_JOIN});
}

/* As dispatch.c does: creates a run if there is none or all members of it are gone. */
static void begin_run(struct sim *sim)
{
    struct round *before = sim->round;

    if (before && !round_is_deserted(before))
        return;
    if (round_create(&sim->round, &sim->settings) < 0)
        die(sim, "settings");
    if (before)
        round_succeed(sim->round, before);
    if (sim->restarted_ms > 0 &&
        sim->restarted_ms + sim->settings.lost_after_ms > sim->now_ms)
        round_hold(sim->round, sim->restarted_ms);
    round_destroy(before);
    sim->mark.generation = 0;
    sim->last_generation = 0; /* a new run counts from 1 again */
    sim->free_generation = 0;
    sim->restart_count = 0;
}

static struct member_link link_of(const struct sim_node *node,
                                  const struct sim_conn *conn)
{
    struct member_link link = {.id = conn->member, .peer = peer_of(conn)};

    snprintf(link.host, sizeof link.host, "n%u", node->index);
    snprintf(link.seen_as, sizeof link.seen_as, "10.%u.%u.%u", node->index >> 16,
             node->index >> 8 & 255, node->index & 255);
    snprintf(link.reached_at, sizeof link.reached_at, "10.255.0.1");
    return link;
}

/* A new connection starts with fresh state, as if the server had answered just now. */
static void begin_conn(struct sim *sim, struct sim_node *node, uint64_t id)
{
    node->id = id;
    node->acked_ms = node->answered_ms = node->data_ms = sim->now_ms;
    node->has_held = false;
    node->unacknowledged = 0;
    node->is_shut = node->is_fenced = false;
}

static void connect_node(struct sim *sim, struct sim_node *node)
{
    struct member_link link;

    if (node->is_done || node->is_silent)
        return;
    if (sim->is_down) {
        later(sim, DOWN_MS, node, EVENT_CONNECT, 0);
        return;
    }
    if (sim->round && sim->round->state == ROUND_CLOSED) {
        node->is_done = true; /* the server refuses: the run is over */
        node->refused = CTRUN_E_CLOSED;
        return;
    }
    begin_run(sim);
    link = link_of(node, open_conn(sim, node, ++sim->last_id));
    link.key = 1 + sim_random(sim, UINT32_MAX);
    node->ticket = (struct ct_ticket){.id = link.id, .key = link.key};
    begin_conn(sim, node, sim->conn_count);
    node->is_ending = false;
    node->is_leaving = false;
    node->failed = node->succeeded = 0;
    node->start.generation = 0;
    node->stop = (struct ct_stop){0};
    (void)step(
        sim, &(struct round_command){.kind = ROUND_ADD, .id = link.id, .link = &link});
    if (sim->settings.pause_ms > 0)
        (void)step(sim, &(struct round_command){.kind = ROUND_DIRECT, .id = link.id});
    join(sim, node);
    later(sim, BEAT_MS, node, EVENT_BEAT, 0);
}

/* The node has no server. Its workers may need all the time that is left of the lease. */
static void cut_off(struct sim *sim, struct sim_node *node)
{
    uint64_t end_ms = node->acked_ms + sim->settings.lost_after_ms - FENCE_BEFORE_MS;
    uint64_t left_ms = end_ms > sim->now_ms ? end_ms - sim->now_ms : 0;

    node->id = 0;
    later(sim, sim_random(sim, left_ms + 1), node, EVENT_CUT_OFF, 0);
}

static uint8_t resume_state(const struct sim_node *node)
{
    if (node->is_ending)
        return CT_RESUME_STOPPING;
    if (node->alive)
        return CT_RESUME_RUNNING;
    if (node->stop.generation == node->start.generation && node->stop.is_final)
        return CT_RESUME_STOPPED;
    if (node->succeeded == node->start.generation && node->succeeded > 0 &&
        node->stop.generation != node->succeeded)
        return CT_RESUME_SUCCEEDED;
    return CT_RESUME_JOINING;
}

static void resume_later(struct sim *sim, struct sim_node *node)
{
    later(sim, 1 + sim_random(sim, RESUME_MS), node, EVENT_TRY, 0);
}

/* The connection is gone; the membership may continue. */
static void begin_resume(struct sim *sim, struct sim_node *node)
{
    if (node->is_leaving) {
        cut_off(sim, node);
        return;
    }
    node->id = 0;
    node->has_held = false;
    node->is_resuming = true;
    resume_later(sim, node);
}

/* When the workers end if no server answers. */
static uint64_t lease_end_ms(const struct sim *sim, const struct sim_node *node)
{
    return node->answered_ms + sim->settings.lost_after_ms - FENCE_BEFORE_MS;
}

static void try_resume(struct sim *sim, struct sim_node *node)
{
    const uint64_t end_ms = lease_end_ms(sim, node);
    struct ct_resume resume;
    const struct ct_message message = {CT_MESSAGE_RESUME, .resume = &resume};
    struct member_link link;
    struct sim_conn *conn;

    if (!node->is_resuming || node->is_done)
        return;
    if (sim->now_ms < end_ms && (sim->is_down || node->is_silent)) {
        resume_later(sim, node);
        return;
    }
    node->is_resuming = false;
    if (sim->now_ms >= end_ms) {
        cut_off(sim, node);
        return;
    }
    conn = open_conn(sim, node, node->ticket.id);
    link = link_of(node, conn);
    resume = (struct ct_resume){.id = node->ticket.id,
                                .key = node->ticket.key,
                                .generation = node->start.generation,
                                .state = resume_state(node)};
    node->id = conn->id; /* messages to this node go to this connection */
    node->unacknowledged = 0;
    if (step(sim, &(struct round_command){.kind = ROUND_RESUME,
                                          .id = node->ticket.id,
                                          .link = &link,
                                          .message = &message}) < 0) {
        sim->conns[node->id - 1].member = 0;
        cut_off(sim, node);
        return;
    }
    node->resumes++;
    node->acked_ms = node->answered_ms = node->data_ms = sim->now_ms;
    node->is_shut = node->is_fenced = false;
    if (sim->settings.pause_ms > 0)
        (void)step(
            sim, &(struct round_command){.kind = ROUND_DIRECT, .id = node->ticket.id});
    later(sim, BEAT_MS, node, EVENT_BEAT, 0);
}

static void send_again(struct sim *sim, struct sim_node *node,
                       const struct ct_resumed *resumed)
{
    const uint64_t generation = node->start.generation;

    switch (resume_state(node)) {
    case CT_RESUME_SUCCEEDED:
        send_up(sim, node,
                (struct note){.kind = CT_MESSAGE_SUCCEEDED, .generation = generation});
        break;
    case CT_RESUME_JOINING:
        if (resumed->generation > generation)
            break; /* START follows */
        if (resumed->is_in_world)
            send_up(
                sim, node,
                (struct note){.kind = CT_MESSAGE_STOPPED, .generation = generation});
        join(sim, node);
        break;
    case CT_RESUME_STOPPED:
        send_up(sim, node,
                (struct note){.kind = CT_MESSAGE_STOPPED, .generation = generation});
        break;
    default:
        if (node->failed == generation)
            send_up(sim, node,
                    (struct note){.kind = CT_MESSAGE_FAILURE,
                                  .generation = generation,
                                  .age_ms = age_of(sim, node),
                                  .code = 3});
        if (node->stop.generation == generation)
            send_up(
                sim, node,
                (struct note){.kind = CT_MESSAGE_STOPPING, .generation = generation});
        break;
    }
}

static void come_back(struct sim *sim, struct sim_node *node)
{
    if (node->id)
        return;
    set_alive(sim, node, 0, 0);
    if (node->is_leaving)
        node->is_done = true;
    else
        later(sim, BACK_MS, node, EVENT_CONNECT, 0);
}

/* Its host acknowledges what we send, so the server will read it before it counts us as lost. */
static bool is_server_paused(const struct sim *sim, const struct sim_node *node)
{
    const uint64_t pause_ms = sim->settings.pause_ms;

    return pause_ms > 0 && node->id && !node->is_silent &&
           sim->now_ms < sim->server_paused_until_ms &&
           sim->now_ms - node->answered_ms < pause_ms / 5 * 4;
}

static void beat(struct sim *sim, struct sim_node *node)
{
    if (!is_server_paused(sim, node) &&
        sim->now_ms - node->acked_ms + FENCE_BEFORE_MS >= sim->settings.lost_after_ms) {
        /* nobody answers: no worker may live beyond the lease */
        set_alive(sim, node, 0, 0);
        if (!node->is_silent) {
            close_link(sim, node);
            cut_off(sim, node);
            return;
        }
    }
    send_up(sim, node,
            (struct note){.kind = CT_MESSAGE_HEARTBEAT, .generation = sim->now_ms});
    later(sim, BEAT_MS, node, EVENT_BEAT, 0);
}

static void end_workers(struct sim *sim, struct sim_node *node, uint64_t generation)
{
    if (node->is_ending)
        return;
    node->is_ending = true;
    node->ending = generation;
    later(sim,
          node->stops_after_ms ? node->stops_after_ms
                               : 1 + sim_random(sim, STOP_MAX_MS),
          node, EVENT_STOPPED, generation);
}

static void on_stopped(struct sim *sim, struct sim_node *node, uint64_t generation)
{
    node->is_ending = false;
    set_alive(sim, node, 0, 0);
    send_up(sim, node,
            (struct note){.kind = CT_MESSAGE_STOPPED, .generation = generation});
    if (node->is_leaving) {
        node->is_done = true;
        close_link(sim, node);
    } else if (!node->stop.is_final) {
        join(sim, node);
    }
}

static void start(struct sim *sim, struct sim_node *node, const struct ct_start *start,
                  uint64_t world)
{
    node->has_held = false;
    if (node->is_leaving)
        return;
    if (node->alive || node->is_ending)
        die(sim, "START for a node whose workers are still there");
    node->start = *start;
    node->starts++;
    set_alive(sim, node, start->generation, world);
    if (node->succeeds_after_ms != SIM_NEVER)
        later(sim, (uint64_t)node->succeeds_after_ms, node, EVENT_SUCCESS,
              start->generation);
}

/* A START that arrived while we were paused may be of a world that has ended. */
static bool is_fresh(const struct sim *sim, const struct sim_node *node)
{
    return sim->now_ms - node->answered_ms + FENCE_BEFORE_MS <
           sim->settings.lost_after_ms;
}

static void on_start(struct sim *sim, struct sim_node *node, const struct note *note)
{
    if (is_fresh(sim, node)) {
        start(sim, node, &note->start, note->world);
        return;
    }
    node->has_held = true;
    node->held = note->start;
    node->held_world = note->world;
}

static void on_ack(struct sim *sim, struct sim_node *node, uint64_t sent_ms)
{
    if (sent_ms > node->answered_ms)
        node->answered_ms = sent_ms;
    if (node->answered_ms > node->acked_ms)
        node->acked_ms = node->answered_ms;
    if (node->has_held && is_fresh(sim, node))
        start(sim, node, &node->held, node->held_world);
}

static void leave(struct sim *sim, struct sim_node *node)
{
    if (!node->id || node->is_leaving)
        return;
    node->is_leaving = true;
    send_up(sim, node,
            (struct note){.kind = CT_MESSAGE_LEAVE, .generation = node->alive});
    end_workers(sim, node, node->alive);
}

static void receive(struct sim *sim, struct sim_node *node, struct note *note)
{
    if (node->has_held && note->kind == CT_MESSAGE_STOP) {
        node->has_held = false; /* the world has ended before we could start in it */
        close_link(sim, node);
        begin_resume(sim, node);
        free(note->stop);
        return;
    }
    switch ((int)note->kind) {
    case CT_MESSAGE_START: on_start(sim, node, note); break;
    case CT_MESSAGE_STOP:
        /* The second STOP, with the decision. */
        if (node->stop.generation == note->stop->generation) {
            if (node->stop.reason != CT_STOP_UNDECIDED && node->resumes == 0)
                die(sim, "two STOPs for one world");
            if (node->stop.reason == CT_STOP_UNDECIDED)
                node->stop = *note->stop;
            break;
        }
        if (note->stop->generation != node->start.generation)
            break; /* of a world that it has left */
        node->stop = *note->stop;
        send_up(sim, node,
                (struct note){.kind = CT_MESSAGE_STOPPING,
                              .generation = note->stop->generation});
        if (!node->is_leaving)
            end_workers(sim, node, note->stop->generation);
        break;
    case CT_MESSAGE_VERDICT:
        node->verdict = *note->verdict;
        node->is_done = true;
        set_alive(sim, node, 0, 0);
        close_link(sim, node);
        break;
    case CT_MESSAGE_WAITING:
        node->waits++;
        node->is_spare = note->flag;
        break;
    case CT_MESSAGE_REFUSE:
        node->refused = (int)note->code;
        node->is_done = true;
        set_alive(sim, node, 0, 0);
        close_link(sim, node);
        break;
    case NOTE_END: begin_resume(sim, node); break;
    case CT_MESSAGE_RESUMED: send_again(sim, node, &note->resumed); break;
    case CT_MESSAGE_HEARTBEAT_ACK: on_ack(sim, node, note->generation); break;
    case CT_MESSAGE_PEER:
    case CT_MESSAGE_RESIZE: break;
    case CT_MESSAGE_DRAIN: leave(sim, node); break;
    default: die(sim, "a message that the server does not send");
    }
    free(note->stop);
    free(note->verdict);
}

static void fail(struct sim *sim, struct sim_node *node, int64_t code,
                 uint64_t happened_ms)
{
    sim->failures++;
    node->failed = node->start.generation;
    node->failed_ms = happened_ms;
    send_up(sim, node,
            (struct note){.kind = CT_MESSAGE_FAILURE,
                          .generation = node->start.generation,
                          .age_ms = age_of(sim, node),
                          .code = code});
}

static void pause_node(struct sim *sim, struct sim_node *node, uint64_t for_ms)
{
    if (sim->now_ms < node->paused_until_ms)
        return;
    node->paused_until_ms = sim->now_ms + for_ms;
    later(sim, for_ms, node, EVENT_RESUME, 0);
    later(sim, 0, node, EVENT_GUARD, 0);
}

/* After a pause the server gets one heartbeat period to answer, so that messages that arrived
 * meanwhile are read first. */
static void resume(struct sim *sim, struct sim_node *node)
{
    const uint64_t patience_ms = sim->settings.lost_after_ms - FENCE_BEFORE_MS;

    if (sim->now_ms + BEAT_MS > node->acked_ms + patience_ms)
        node->acked_ms = sim->now_ms + BEAT_MS - patience_ms;
    if (node->is_fenced && node->id && !node->is_ending)
        fail(sim, node, 137, sim->now_ms); /* its workers died of SIGKILL */
    node->is_fenced = false;
}

/* Does what agent/guard/fence.c does. */
static void guard(struct sim *sim, struct sim_node *node)
{
    const uint64_t lost_after_ms = sim->settings.lost_after_ms;
    const uint64_t until_ms = node->answered_ms + lost_after_ms - lost_after_ms / 20;
    const bool is_paused = sim->now_ms < node->paused_until_ms;

    if (!node->alive || sim->now_ms < until_ms ||
        (!is_paused && is_server_paused(sim, node))) {
        if (is_paused) /* else the agent renews it in time */
            later(sim, sim->now_ms < until_ms ? until_ms - sim->now_ms : BEAT_MS, node,
                  EVENT_GUARD, 0);
        return;
    }
    if (sim->settings.pause_ms > 0 && node->id && !node->is_shut &&
        sim->now_ms - node->data_ms < lost_after_ms / 5 * 2) {
        later(sim, lost_after_ms / 20, node, EVENT_GUARD, 0);
        return;
    }
    set_alive(sim, node, 0, 0);
    node->is_fenced = true;
    if (!is_paused)
        resume(sim, node); /* the agent sees its workers end */
}

static void suffer(struct sim *sim, struct sim_node *node, const struct note *note)
{
    if (node->is_done)
        return;
    switch ((enum sim_fault)note->generation) {
    case SIM_FAIL:
        if (node->alive && !node->is_ending)
            fail(sim, node, note->code,
                 note->happened_ms ? note->happened_ms : sim->now_ms);
        break;
    case SIM_BREAK:
        if (node->id) {
            close_link(sim, node);
            begin_resume(sim, node);
        }
        break;
    case SIM_POWER_OFF:
        node->is_silent = true;
        node->is_done = true;
        node->id = 0;
        set_alive(sim, node, 0, 0);
        break;
    case SIM_SILENCE:
        node->is_silent = true;
        later(sim, (uint64_t)note->code, node, EVENT_VOICE, 0);
        break;
    case SIM_LEAVE: leave(sim, node); break;
    case SIM_PAUSE: pause_node(sim, node, (uint64_t)note->code); break;
    case SIM_PAUSE_SERVER:
        if (sim->now_ms >= sim->server_paused_until_ms)
            sim->server_paused_until_ms = sim->now_ms + (uint64_t)note->code;
        break;
    case SIM_CRASH:
    case SIM_GAP: break; /* of the server, not of a node */
    case SIM_RESIZE:
        send_up(sim, node,
                (struct note){.kind = CT_MESSAGE_RESIZE, .code = note->code});
        break;
    case SIM_DRAIN:
        send_up(sim, node, (struct note){.kind = CT_MESSAGE_DRAIN, .code = note->code});
        break;
    case SIM_RESTART:
        send_up(sim, node, (struct note){.kind = CT_MESSAGE_RESTART});
        break;
    }
}

/* ---- Events ------------------------------------------------------------------------------ */

/* Only the simulation knows this: whether another node of this world is dead by now. */
static bool has_dead(const struct sim *sim, const struct sim_node *reporter,
                     uint64_t generation)
{
    member_for_each(member, &sim->round->members) {
        const struct sim_node *node = node_of(sim, member);

        if (node != reporter && member->start.generation == generation &&
            member_is_in_world(member) && node->is_done && node->is_silent)
            return true;
    }
    return false;
}

static void arrive(struct sim *sim, struct sim_node *node,
                   const struct sim_event *event)
{
    static union {
        struct ct_join join;
        struct ct_heartbeat heartbeat;
        struct ct_failure failure;
        struct ct_stopping stopping;
        struct ct_stopped stopped;
        struct ct_succeeded succeeded;
        struct ct_resize resize;
        struct ct_drain drain;
    } body;
    const struct ct_message message = {event->note.kind, .body = &body};
    const struct note *note = &event->note;
    const struct sim_conn *conn = &sim->conns[event->id - 1];

    if (conn->member == 0)
        return; /* the server has closed it, or was killed */
    memset(&body, 0, sizeof body);
    switch ((int)note->kind) {
    case CT_MESSAGE_JOIN:
        body.join.slots = node->slots;
        body.join.node_rank_hint = node->hint;
        body.join.is_endpoint = node->is_endpoint;
        body.join.store_port = (uint16_t)(1024 + node->index);
        snprintf(body.join.role, sizeof body.join.role, "default");
        break;
    case CT_MESSAGE_HEARTBEAT:
        body.heartbeat.step = -1;
        send_down(sim, conn,
                  (struct note){.kind = CT_MESSAGE_HEARTBEAT_ACK,
                                .generation = note->generation});
        break;
    case CT_MESSAGE_FAILURE:
        body.failure.generation = note->generation;
        body.failure.cause = CT_CAUSE_EXIT;
        body.failure.code = (int32_t)note->code;
        body.failure.age_ms = note->age_ms;
        body.failure.may_loop = note->code >= SIM_EARLY;
        body.failure.rank = (int32_t)node->start.rank_base;
        body.failure.node_rank = (int32_t)node->start.group_rank;
        if (sim->round && sim->round->state == ROUND_RUNNING &&
            note->generation == sim->round->generation &&
            has_dead(sim, node, note->generation))
            sim->free_generation = note->generation;
        break;
    case CT_MESSAGE_STOPPING: body.stopping.generation = note->generation; break;
    case CT_MESSAGE_STOPPED: body.stopped.generation = note->generation; break;
    case CT_MESSAGE_SUCCEEDED: body.succeeded.generation = note->generation; break;
    case CT_MESSAGE_RESIZE:
        body.resize.min_nodes = (uint32_t)(note->code / 1000);
        body.resize.max_nodes = (uint32_t)(note->code % 1000);
        break;
    case CT_MESSAGE_DRAIN:
        if (note->code >= 0)
            snprintf(body.drain.host, sizeof body.drain.host, "n%d", (int)note->code);
        break;
    default: break;
    }
    (void)step(sim,
               &(struct round_command){
                   .kind = ROUND_MESSAGE,
                   .id = conn->member,
                   .message = &message,
                   .waited_ms = event->is_at_host ? sim->now_ms - note->happened_ms : 0,
                   .rtt_ms = 2 * DELAY_MAX_MS});
}

static void succeed(struct sim *sim, struct sim_node *node, uint64_t generation)
{
    if (node->alive != generation || node->is_ending)
        return;
    set_alive(sim, node, 0, 0);
    node->succeeded = generation;
    send_up(sim, node,
            (struct note){.kind = CT_MESSAGE_SUCCEEDED, .generation = generation});
}

/* An event has reached the host, whether or not its agent reads it. */
static void reach_host(struct sim *sim, struct sim_node *node, struct sim_event *event)
{
    if (event->is_at_host || event->id != node->id || node->is_silent)
        return;
    event->is_at_host = true;
    node->unacknowledged--;
    node->data_ms = sim->now_ms;
    node->is_shut |= event->note.kind == NOTE_END;
}

/* True when the event must wait because its receiver is paused. */
static bool defer(struct sim *sim, struct sim_node *node, const struct sim_event *event)
{
    struct sim_event again = *event;
    const enum sim_fault fault = (enum sim_fault)event->note.generation;

    switch (event->kind) {
    case EVENT_UP:
    case EVENT_GONE:
        again.at_ms = sim->server_paused_until_ms;
        if (!again.is_at_host) /* else it was put there before */
            again.note.happened_ms = sim->now_ms;
        again.is_at_host = true;
        break;
    case EVENT_TICK: /* messages are read before timers run */
        again.at_ms = sim->server_paused_until_ms + 1;
        if (again.at_ms <= sim->now_ms + 1)
            return false;
        break;
    case EVENT_FAULT:
        again.at_ms = fault == SIM_FAIL || fault == SIM_LEAVE || fault >= SIM_RESIZE
                          ? node->paused_until_ms
                          : 0;
        if (again.note.happened_ms == 0)
            again.note.happened_ms = sim->now_ms;
        break;
    case EVENT_DOWN:
    case EVENT_BEAT:
    case EVENT_SUCCESS:
    case EVENT_STOPPED:
    case EVENT_CUT_OFF: again.at_ms = node->paused_until_ms; break;
    case EVENT_TRY:
        again.at_ms = lease_end_ms(sim, node);
        if (again.at_ms > sim->server_paused_until_ms)
            again.at_ms = sim->server_paused_until_ms;
        if (again.at_ms < node->paused_until_ms)
            again.at_ms = node->paused_until_ms;
        break;
    case EVENT_CONNECT:
        again.at_ms = node->paused_until_ms > sim->server_paused_until_ms
                          ? node->paused_until_ms
                          : sim->server_paused_until_ms;
        break;
    case EVENT_VOICE:
    case EVENT_GUARD:
    case EVENT_RESTART:
    case EVENT_RESUME: return false;
    }
    if (again.at_ms <= sim->now_ms)
        return false;
    add_event(sim, again);
    return true;
}

/* CTRUN_SIM_TRACE=1: what happened up to an abort. */
static void trace(const struct sim *sim, const struct sim_event *event)
{
    static const char *const names[] = {
        "connect", "fault", "up",      "down",  "gone",   "tick", "beat",   "success",
        "stopped", "voice", "cut off", "guard", "resume", "try",  "restart"};
    const struct sim_node *node = &sim->nodes[event->node];

    if (!getenv("CTRUN_SIM_TRACE"))
        return;
    fprintf(stderr,
            "%7llu n%zu %s %s generation=%llu alive=%llu id=%llu silent=%d paused=%d\n",
            (unsigned long long)sim->now_ms, event->node, names[event->kind],
            event->kind == EVENT_UP || event->kind == EVENT_DOWN
                ? ct_message_name((int)event->note.kind)
                : "",
            (unsigned long long)event->note.generation, (unsigned long long)node->alive,
            (unsigned long long)node->id, node->is_silent,
            sim->now_ms < node->paused_until_ms);
}

/* Messages on their way are lost, or arrive before their connection ends. */
static void crash(struct sim *sim, bool has_gap, uint64_t down_ms)
{
    if (sim->is_down)
        return;
    if (has_gap && sim->batch_count > 0) {
        sim->has_gap = true;
        drop_batches(sim,
                     sim->batch_count - 1 -
                         sim_random(sim, sim->batch_count < GAP_MAX ? sim->batch_count
                                                                    : GAP_MAX));
    }
    for (size_t i = 0; i < sim->conn_count; i++) {
        struct sim_conn *conn = &sim->conns[i];

        if (conn->node->id == conn->id && sim_random(sim, 2) && !conn->node->is_silent)
            begin_resume(sim, conn->node);
        else
            send_down(sim, conn, (struct note){.kind = NOTE_END});
        conn->member = 0;
    }
    round_destroy(sim->round);
    sim->round = NULL;
    sim->tick_ms = UINT64_MAX;
    sim->is_down = true;
    sim->server_paused_until_ms = 0; /* a paused server is killed, too */
    later(sim, down_ms, &sim->nodes[0], EVENT_RESTART, 0);
}

static void restart(struct sim *sim)
{
    sim->is_down = false;
    sim->restarted_ms = sim->now_ms;
    restore(sim);
    if (sim->round)
        schedule_tick(sim);
}

static void part(struct sim *sim, struct sim_conn *conn)
{
    uint64_t member = conn->member;

    conn->member = 0;
    if (member != 0)
        (void)step(sim, &(struct round_command){
                            .kind = ROUND_GONE, .id = member, .reason = "broken"});
}

static void happen(struct sim *sim, struct sim_event *event)
{
    struct sim_node *node = &sim->nodes[event->node];
    bool is_current = event->id == node->id;

    if (event->kind == EVENT_DOWN)
        reach_host(sim, node, event);
    if (defer(sim, node, event))
        return;
    trace(sim, event);
    switch (event->kind) {
    case EVENT_CONNECT:
        if (!node->id && !node->alive &&
            !node->is_resuming) /* else it connects again already */
            connect_node(sim, node);
        break;
    case EVENT_FAULT:
        if (event->note.generation == SIM_CRASH || event->note.generation == SIM_GAP)
            crash(sim, event->note.generation == SIM_GAP, (uint64_t)event->note.code);
        else
            suffer(sim, node, &event->note);
        break;
    case EVENT_TRY: try_resume(sim, node); break;
    case EVENT_RESTART: restart(sim); break;
    case EVENT_UP: arrive(sim, node, event); break;
    case EVENT_DOWN:
        if (is_current && (!node->is_silent || event->is_at_host)) {
            receive(sim, node, &event->note);
        } else {
            free(event->note.stop);
            free(event->note.verdict);
        }
        break;
    case EVENT_GONE: part(sim, &sim->conns[event->id - 1]); break;
    case EVENT_TICK:
        sim->tick_ms = UINT64_MAX;
        (void)step(sim, &(struct round_command){.kind = ROUND_TICK});
        break;
    case EVENT_BEAT:
        if (is_current && node->id && !node->is_done)
            beat(sim, node);
        break;
    case EVENT_SUCCESS: succeed(sim, node, event->note.generation); break;
    case EVENT_STOPPED:
        if (node->is_ending && event->note.generation == node->ending)
            on_stopped(sim, node, event->note.generation);
        break;
    case EVENT_VOICE:
        if (node->is_done)
            break; /* it was powered off meanwhile */
        node->is_silent = false;
        close_link(sim, node); /* it could not connect, or its connection is broken */
        begin_resume(sim, node);
        break;
    case EVENT_CUT_OFF: come_back(sim, node); break;
    case EVENT_GUARD: guard(sim, node); break;
    case EVENT_RESUME: resume(sim, node); break;
    }
}

void sim_run(struct sim *sim, uint64_t until_ms)
{
    while (sim->event_count > 0 && sim->events[0].at_ms <= until_ms) {
        struct sim_event event = take_event(sim);

        sim->now_ms = event.at_ms;
        happen(sim, &event);
    }
}

/* ---- Life -------------------------------------------------------------------------------- */

void sim_init(struct sim *sim, const struct round_settings *settings, size_t node_count,
              uint64_t seed)
{
    *sim = (struct sim){.settings = *settings,
                        .seed = seed,
                        .random = seed * 2 + 1,
                        .node_count = node_count,
                        .tick_ms = UINT64_MAX};
    sim->nodes = calloc(node_count, sizeof *sim->nodes);
    for (size_t i = 0; i < node_count; i++)
        sim->nodes[i] = (struct sim_node){.index = (uint32_t)i,
                                          .slots = 1,
                                          .hint = -1,
                                          .succeeds_after_ms = SIM_NEVER};
}

void sim_deinit(struct sim *sim)
{
    while (sim->event_count > 0) {
        struct sim_event event = take_event(sim);

        free(event.note.stop);
        free(event.note.verdict);
    }
    round_destroy(sim->round);
    drop_batches(sim, 0);
    free(sim->batches);
    free(sim->conns);
    free(sim->events);
    free(sim->nodes);
}

void sim_join_at(struct sim *sim, uint64_t at_ms, size_t i)
{
    add_event(sim,
              (struct sim_event){.at_ms = at_ms, .kind = EVENT_CONNECT, .node = i});
}

void sim_fault_at(struct sim *sim, uint64_t at_ms, size_t i, enum sim_fault fault,
                  int64_t code)
{
    add_event(
        sim, (struct sim_event){.at_ms = at_ms,
                                .kind = EVENT_FAULT,
                                .node = i,
                                .note = {.generation = (uint64_t)fault, .code = code}});
}
