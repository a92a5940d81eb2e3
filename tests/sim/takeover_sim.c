/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that may all serve, in virtual time: real rounds with their allegiance on the servers'
 * side, and on the agents' side what agent/link.c and agent/agent_heir.c do, without resuming, so
 * that an agent leaves its server sooner than a real one. Cables are cut and mended, one way or
 * both; nodes lose their power, and new ones come.
 *
 * After every step of time: workers of two worlds are never alive at once. A seed gives the same
 * story each time; CTRUN_SIM_SEED and CTRUN_SIM_COUNT choose others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/round.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/wire/takeover.h"

enum {
    NODES_MAX = 7,
    MAIL_MAX = 4096,
    STEP_MS = 20,
    LOST_MS = 5000,
    BEAT_MS = 1000,
    TRY_MS = 2000,
};

enum mail_kind { /* beside enum ct_message_kind */
    MAIL_OPEN = 1000,
    MAIL_CLOSED,
    MAIL_TURNED_AWAY,
};

struct mail {
    int kind;
    int from, to;
    bool is_to_server;
    uint64_t due_ms;
    uint64_t link; /* a connection's number */
    uint64_t a, b, c;
    struct ct_claim claim;
    struct ct_echo echo;
    uint64_t keys[NODES_MAX];
};

struct node {
    bool is_on;
    uint64_t key;
    /* The server; NULL: standby. A member's peer is its connection's number. */
    struct round *round;
    uint64_t last_id;
    uint64_t server_number; /* unlike for each server that ever was */
    /* The agent. */
    int server;    /* whom it asks or follows */
    uint64_t link; /* 0: none */
    bool is_up, is_joined, is_running, is_ending, is_doomed, is_heir, has_gone_round;
    uint64_t asked_ms, beat_ms, acked_sent_ms, serves_until_ms, dies_ms, held_ms;
    uint64_t generation, world, last_world, last_world_server;
    struct ct_claim claim;
    uint64_t echoed_ms, echoed_by;
    size_t candidate;
    /* Its roster. */
    uint64_t roster_generation, roster[NODES_MAX], roster_leader;
    size_t roster_count;
    uint32_t roster_min;
};

static struct {
    uint64_t now_ms, random, last_link, last_key, last_server;
    uint32_t min_nodes, max_nodes;
    int count, host; /* `host`: where everybody begins */
    struct node nodes[NODES_MAX];
    bool is_cut[NODES_MAX][NODES_MAX];
    struct mail mail[MAIL_MAX];
    size_t mail_count;
    size_t worlds; /* that were started */
    uint64_t seed;
} sim;

static uint64_t draw(uint64_t below)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return sim.random % below;
}

static void give_up(const char *what)
{
    print_error("%s at %llu ms: CTRUN_SIM_SEED=%llu\n", what,
                (unsigned long long)sim.now_ms, (unsigned long long)sim.seed);
    abort();
}

static struct mail *post(int kind, int from, int to, bool is_to_server, uint64_t link)
{
    struct mail *mail = &sim.mail[sim.mail_count];

    if (++sim.mail_count == MAIL_MAX)
        give_up("too much mail");
    *mail = (struct mail){.kind = kind,
                          .from = from,
                          .to = to,
                          .is_to_server = is_to_server,
                          .link = link,
                          .due_ms = sim.now_ms + 1 + draw(60)};
    for (size_t i = 0; i + 1 < sim.mail_count; i++) { /* in order on each connection */
        const struct mail *before = &sim.mail[i];

        if (before->link == link && before->is_to_server == is_to_server &&
            before->due_ms > mail->due_ms)
            mail->due_ms = before->due_ms;
    }
    return mail;
}

/* ---- Servers ----------------------------------------------------------------------------- */

static void serve(int at, const struct ct_heritage *heritage)
{
    const struct round_settings settings = {
        .min_nodes = sim.min_nodes,
        .max_nodes = sim.max_nodes,
        .max_restarts = 3,
        .join_timeout_ms = 600000,
        .last_call_ms = 1000,
        .lost_after_ms = LOST_MS,
        .self_key = sim.nodes[at].key,
        .server = ++sim.last_server,
        .proof_ms = ct_takeover_proof_ms(LOST_MS, BEAT_MS),
    };

    assert_int_equal(round_create(&sim.nodes[at].round, &settings), 0);
    if (heritage)
        assert_int_equal(round_inherit(sim.nodes[at].round, heritage), 0);
    sim.nodes[at].server_number = sim.last_server;
}

static int find_agent(uint64_t link)
{
    for (int i = 0; i < sim.count; i++) {
        if (sim.nodes[i].link == link)
            return i;
    }
    return -1;
}

static uint64_t link_of(const struct round_action *action)
{
    return (uint64_t)(uintptr_t)action->peer;
}

/* Of the member of this connection; 0: there is none. */
static uint64_t find_id(int at, uint64_t link)
{
    const struct member_table *members = &sim.nodes[at].round->members;

    for (size_t i = 0; i < members->count; i++) {
        if ((uint64_t)(uintptr_t)members->list[i]->link.peer == link)
            return members->list[i]->link.id;
    }
    return 0;
}

static void send_start(int at, uint64_t id, int to)
{
    const struct member *member = member_find(&sim.nodes[at].round->members, id);
    struct mail *mail;

    if (!member)
        return;
    mail = post(CT_MESSAGE_START, at, to, false, sim.nodes[to].link);
    mail->a = member->start.generation;
    mail->b = sim.nodes[at].server_number << 32 | member->start.generation;
    sim.worlds += member->start.group_rank == 0;
}

static void send_echo(int at, uint64_t link, int to)
{
    struct round *round = sim.nodes[at].round;
    const bool is_held = round->state == ROUND_FORMING &&
                         !round_may_start(round, sim.now_ms);

    post(CT_MESSAGE_ECHO, at, to, false, link)->echo = (struct ct_echo){
        .time_ms = sim.now_ms,
        .server = sim.nodes[at].server_number,
        .is_held = is_held};
}

static void send_roster(int at, uint64_t link, int to)
{
    const struct allegiance *allegiance = &sim.nodes[at].round->allegiance;
    struct mail *mail = post(CT_MESSAGE_ROSTER, at, to, false, link);

    mail->a = allegiance->generation;
    mail->b = allegiance->count;
    mail->c = allegiance->min_nodes;
    mail->claim.key = sim.nodes[at].key;
    for (size_t i = 0; i < allegiance->count; i++)
        mail->keys[i] = allegiance->entries[i].key;
}

static void step_round(int at, const struct round_command *command)
{
    struct node *node = &sim.nodes[at];
    struct round *round = node->round;
    struct allegiance kept;

    (void)round_step(round, command, sim.now_ms);
    for (size_t i = 0; i < round->action_count; i++) {
        const struct round_action *action = &round->actions[i];
        const uint64_t link = link_of(action);
        const int to = find_agent(link);

        if (action->kind == ROUND_FORGET) {
            kept = round->allegiance;
            round->allegiance = (struct allegiance){0};
            round_destroy(round);
            serve(at, NULL);
            round_take_allegiance(node->round, &kept);
            return;
        }
        if (to < 0)
            continue;
        if (action->kind == ROUND_SEND_START) {
            send_start(at, action->id, to);
            send_echo(at, link, to);
        } else if (action->kind == ROUND_SEND_STOP)
            post(CT_MESSAGE_STOP, at, to, false, link)->a = round->stop.generation;
        else if (action->kind == ROUND_SEND_ROSTER)
            send_roster(at, link, to);
        else if (action->kind == ROUND_SEND_ECHO)
            send_echo(at, link, to);
        else if (action->kind == ROUND_DROP || action->kind == ROUND_SEND_REFUSE ||
                 action->kind == ROUND_SEND_VERDICT)
            post(MAIL_CLOSED, at, to, false, link);
    }
}

static void give(int at, uint64_t link, const struct ct_message *message)
{
    if (find_id(at, link) == 0)
        return; /* a member no more */
    step_round(at, &(struct round_command){.kind = ROUND_MESSAGE,
                                           .id = find_id(at, link),
                                           .message = message});
}

static void accept_member(int at, const struct mail *mail)
{
    struct node *node = &sim.nodes[at];
    struct member_link link = {.id = ++node->last_id,
                               .peer = (void *)(uintptr_t)mail->link,
                               .host = "n",
                               .seen_as = "10.0.0.1"};

    if (!node->round) {
        post(MAIL_TURNED_AWAY, at, mail->from, false, mail->link);
        return;
    }
    step_round(
        at, &(struct round_command){.kind = ROUND_ADD, .id = link.id, .link = &link});
    post(CT_MESSAGE_WELCOME, at, mail->from, false, mail->link);
}

static void take_heartbeat(int at, const struct mail *mail)
{
    struct ct_message message = {.kind = CT_MESSAGE_HEARTBEAT};
    struct round *round = sim.nodes[at].round;

    const uint64_t id = find_id(at, mail->link);

    if (id == 0)
        return;
    if (round_may_acknowledge(round, id, sim.now_ms))
        post(CT_MESSAGE_HEARTBEAT_ACK, at, mail->from, false, mail->link)->a = mail->a;
    send_echo(at, mail->link, mail->from);
    message.heartbeat.generation = mail->b;
    give(at, mail->link, &message);
}

static void server_take(const struct mail *mail)
{
    struct ct_message message = {.kind = (enum ct_message_kind)mail->kind};
    const int at = mail->to;

    if (mail->kind == MAIL_OPEN) {
        accept_member(at, mail);
        return;
    }
    if (!sim.nodes[at].round)
        return;
    switch (mail->kind) {
    case CT_MESSAGE_HEARTBEAT: take_heartbeat(at, mail); return;
    case MAIL_CLOSED:
        if (find_id(at, mail->link) == 0)
            return;
        step_round(at, &(struct round_command){.kind = ROUND_GONE,
                                               .id = find_id(at, mail->link),
                                               .reason = "closed"});
        return;
    case CT_MESSAGE_CLAIM: message.claim = mail->claim; break;
    case CT_MESSAGE_ECHO: message.echo = mail->echo; break;
    case CT_MESSAGE_JOIN:
        message.join = (struct ct_join){
            .slots = 1, .node_rank_hint = -1, .store_port = 1, .fingerprint = 1};
        break;
    case CT_MESSAGE_STOPPED: message.stopped.generation = mail->a; break;
    case CT_MESSAGE_RESTART: break;
    default: give_up("unknown mail");
    }
    give(at, mail->link, &message);
}

/* ---- Agents ------------------------------------------------------------------------------ */

static void join(int at)
{
    struct node *node = &sim.nodes[at];
    struct ct_claim claim = {.key = node->key,
                             .port = 1,
                             .generation = node->roster_generation,
                             .server = node->echoed_by,
                             .world = node->last_world,
                             .world_server = node->last_world_server,
                             .age_ms = sim.now_ms - node->echoed_ms};

    node->is_joined = true;
    post(CT_MESSAGE_CLAIM, at, node->server, true, node->link)->claim = claim;
    post(CT_MESSAGE_JOIN, at, node->server, true, node->link);
}

static void ask(int at, int server)
{
    struct node *node = &sim.nodes[at];

    node->server = server;
    node->link = ++sim.last_link;
    node->is_up = node->is_joined = false;
    node->asked_ms = sim.now_ms;
    post(MAIL_OPEN, at, server, true, node->link);
}

static int find_key(uint64_t key)
{
    for (int i = 0; i < sim.count; i++) {
        if (sim.nodes[i].key == key)
            return i;
    }
    return -1; /* its node is another now */
}

static void stop_serving(int at)
{
    round_destroy(sim.nodes[at].round);
    sim.nodes[at].round = NULL;
    sim.nodes[at].is_heir = false;
}

static void inherit(int at, size_t self)
{
    struct node *node = &sim.nodes[at];
    struct ct_heritage heritage = {.generation = node->roster_generation,
                                   .min_nodes = node->roster_min,
                                   .keys = node->roster,
                                   .count = node->roster_count,
                                   .self = self};

    while (node->roster[heritage.leader] != node->roster_leader)
        heritage.leader++;
    serve(at, &heritage);
    node->is_heir = true;
    node->serves_until_ms = sim.now_ms + 2 * LOST_MS;
}

/* As agent_heir.c. A node without a roster asks who it was told of. */
static void ask_next(int at)
{
    struct node *node = &sim.nodes[at];

    while (!node->round && node->candidate < node->roster_count) {
        const size_t i = node->candidate++;
        const int to = find_key(node->roster[i]);

        if (node->roster[i] == node->roster_leader || to < 0)
            continue;
        if (to == at) {
            node->candidate = node->roster_count;
            inherit(at, i);
        }
        ask(at, to);
        return;
    }
    node->candidate = 0;
    if (!node->round && node->roster_count > 0 && node->roster_leader == node->key) {
        size_t self = 0;

        while (node->roster[self] != node->key)
            self++;
        inherit(at, self); /* once more */
    }
    if (node->round)
        ask(at, at);
    else if (node->roster_count == 0 && node->server >= 0)
        ask(at, node->server);
    else
        ask(at, sim.host);
}

static void end_workers(int at, uint64_t limit_ms)
{
    struct node *node = &sim.nodes[at];
    const uint64_t dies_ms = sim.now_ms + draw(limit_ms);

    if (node->world && (!node->is_ending || dies_ms < node->dies_ms))
        node->dies_ms = dies_ms;
    node->is_ending = node->world != 0;
}

static void go_down(int at)
{
    struct node *node = &sim.nodes[at];

    if (node->link)
        post(MAIL_CLOSED, at, node->server, true, node->link);
    node->link = 0;
    node->is_up = node->is_joined = node->is_running = false;
    end_workers(at, LOST_MS / 10);
}

static void take_roster(struct node *node, const struct mail *mail)
{
    if (mail->a != node->generation)
        return;
    node->roster_generation = mail->a;
    node->roster_count = mail->b;
    node->roster_min = (uint32_t)mail->c;
    node->roster_leader = mail->claim.key;
    memcpy(node->roster, mail->keys, sizeof node->roster);
}

static void take_start(struct node *node, const struct mail *mail)
{
    if (!node->is_joined || node->world)
        return;
    node->is_running = true;
    node->last_world = mail->a;
    node->last_world_server = node->echoed_by;
    node->generation = mail->a;
    node->world = mail->b;
    node->roster_count = node->roster_generation = 0;
    node->candidate = 0;
}

/* A host whose next round waits for the others goes to them, as agent_take_echo() does. */
static void take_held(int at, bool is_held)
{
    struct node *node = &sim.nodes[at];

    if (!is_held || node->server != at || !node->round || node->is_running ||
        node->roster_leader != node->key || node->roster_count == 0)
        node->held_ms = 0;
    else if (node->held_ms == 0)
        node->held_ms = sim.now_ms;
    else if (sim.now_ms >= node->held_ms + 2 * LOST_MS) {
        node->held_ms = 0;
        stop_serving(at);
        go_down(at);
    }
}

static void agent_take(const struct mail *mail)
{
    const int at = mail->to;
    struct node *node = &sim.nodes[at];

    if (mail->link != node->link)
        return;
    switch (mail->kind) {
    case MAIL_TURNED_AWAY: node->link = 0; break; /* and asks again */
    case MAIL_CLOSED: go_down(at); break;
    case CT_MESSAGE_WELCOME:
        node->is_up = true;
        node->acked_sent_ms = node->asked_ms;
        node->generation = 0;
        join(at);
        break;
    case CT_MESSAGE_HEARTBEAT_ACK:
        if (mail->a > node->acked_sent_ms)
            node->acked_sent_ms = mail->a;
        break;
    case CT_MESSAGE_ECHO: {
        struct mail *back = post(CT_MESSAGE_ECHO, at, node->server, true, node->link);

        node->echoed_ms = sim.now_ms;
        node->echoed_by = mail->echo.server;
        take_held(at, mail->echo.is_held);
        back->echo = mail->echo;
        back->echo.generation = node->generation;
        break;
    }
    case CT_MESSAGE_ROSTER: take_roster(node, mail); break;
    case CT_MESSAGE_START: take_start(node, mail); break;
    case CT_MESSAGE_STOP:
        if (mail->a == node->generation && node->is_running)
            end_workers(at, 2000);
        break;
    default: give_up("unknown mail to an agent");
    }
}

static void workers_end(int at)
{
    struct node *node = &sim.nodes[at];
    const bool is_of_round = node->is_running;

    node->world = 0;
    node->is_ending = node->is_running = false;
    if (!node->is_up || !is_of_round)
        return;
    post(CT_MESSAGE_STOPPED, at, node->server, true, node->link)->a = node->generation;
    join(at);
}

static void step_agent(int at)
{
    struct node *node = &sim.nodes[at];

    if (node->is_ending && sim.now_ms >= node->dies_ms)
        workers_end(at);
    if (node->is_up && sim.now_ms >= node->beat_ms) {
        struct mail *mail = post(CT_MESSAGE_HEARTBEAT, at, node->server, true,
                                 node->link);

        node->beat_ms = sim.now_ms + BEAT_MS;
        mail->a = sim.now_ms;
        mail->b = node->generation;
    }
    if (node->is_up && sim.now_ms >= node->acked_sent_ms + LOST_MS / 5 * 4)
        go_down(at);
    if (node->is_heir && !node->is_running && sim.now_ms >= node->serves_until_ms) {
        node->serves_until_ms = UINT64_MAX;
        if (node->world == 0) {
            stop_serving(at);
            go_down(at);
        }
    }
    if (node->is_up || node->world)
        return;
    if (!node->link && sim.now_ms < node->asked_ms + TRY_MS && node->server >= 0 &&
        node->asked_ms > 0) {
        const uint64_t asked_ms = node->asked_ms;

        ask(at, node->server); /* it may be about to serve */
        node->asked_ms = asked_ms;
    } else if (!node->link || sim.now_ms >= node->asked_ms + TRY_MS) {
        if (node->link)
            post(MAIL_CLOSED, at, node->server, true, node->link);
        ask_next(at);
    }
}

/* ---- The world --------------------------------------------------------------------------- */

static void deliver(void)
{
    for (size_t i = 0; i < sim.mail_count;) {
        const struct mail mail = sim.mail[i];
        struct node *to = &sim.nodes[mail.to];

        if (mail.due_ms > sim.now_ms || (sim.is_cut[mail.from][mail.to] && to->is_on)) {
            i++; /* a cable that is cut holds it back */
            continue;
        }
        memmove(&sim.mail[i], &sim.mail[i + 1],
                (--sim.mail_count - i) * sizeof sim.mail[0]);
        if (!to->is_on)
            continue;
        if (mail.is_to_server)
            server_take(&mail);
        else
            agent_take(&mail);
        i = 0;
    }
}

/* What is sent over a cable that is cut for long is given up. */
static void expire_mail(void)
{
    size_t kept = 0;

    for (size_t i = 0; i < sim.mail_count; i++) {
        if (sim.now_ms < sim.mail[i].due_ms + 20000)
            sim.mail[kept++] = sim.mail[i];
    }
    sim.mail_count = kept;
}

static void check(void)
{
    uint64_t world = 0;

    for (int i = 0; i < sim.count; i++) {
        const struct node *node = &sim.nodes[i];

        if (!node->is_on || node->world == 0)
            continue;
        if (world != 0 && world != node->world)
            give_up("two live worlds");
        world = node->world;
    }
}

static size_t live(void)
{
    size_t count = 0;

    for (int i = 0; i < sim.count; i++)
        count += sim.nodes[i].is_on && sim.nodes[i].world && !sim.nodes[i].is_ending;
    return count;
}

static void run_for(uint64_t time_ms)
{
    const uint64_t end_ms = sim.now_ms + time_ms;

    while (sim.now_ms < end_ms) {
        sim.now_ms += STEP_MS;
        deliver();
        expire_mail();
        for (int i = 0; i < sim.count; i++) {
            struct node *node = &sim.nodes[i];

            if (node->is_on && node->round && sim.now_ms >= round_next_ms(node->round))
                step_round(i, &(struct round_command){.kind = ROUND_TICK});
            if (node->is_on)
                step_agent(i);
        }
        check();
    }
}

static void power_off(int at)
{
    struct node *node = &sim.nodes[at];

    round_destroy(node->round);
    *node = (struct node){.server = -1};
}

static void power_on(int at)
{
    sim.nodes[at] = (struct node){.is_on = true, .key = ++sim.last_key, .server = -1};
    if (at == sim.host)
        serve(at, NULL);
}

static void begin(int count, uint32_t min_nodes, uint64_t seed)
{
    memset(&sim, 0, sizeof sim);
    sim.now_ms = 100000;
    sim.seed = seed;
    sim.random = seed * 2654435761u + 1;
    sim.count = count;
    sim.min_nodes = min_nodes;
    sim.max_nodes = (uint32_t)count;
    for (int i = 0; i < count; i++)
        power_on(i);
    run_for(3000);
}

static void end(void)
{
    for (int i = 0; i < sim.count; i++)
        power_off(i);
}

static void cut_off(int at, bool is_cut)
{
    for (int i = 0; i < sim.count; i++) {
        if (i != at)
            sim.is_cut[at][i] = sim.is_cut[i][at] = is_cut;
    }
}

/* ---- Stories ----------------------------------------------------------------------------- */

static void survivors_of_the_host_go_on_within_ten_seconds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const uint32_t count = 3 + (uint32_t)(seed % 4);

        begin((int)count, 2 + (uint32_t)(seed / 4) % (count - 1), seed);
        assert_int_equal(live(), sim.count);
        run_for(draw(3000));
        if (seed % 3)
            power_off(0);
        else
            cut_off(0, true);
        if (ct_takeover_may((uint64_t)sim.count, (uint64_t)sim.count - 1,
                            sim.min_nodes)) {
            const size_t before = sim.worlds;

            for (int i = 0; i < 10 * 10 && sim.worlds == before; i++)
                run_for(100);
            run_for(500);
            if (live() != (size_t)sim.count - 1)
                give_up("the survivors do not go on");
        } else {
            run_for(20000);
            assert_int_equal(live(), 0);
        }
        end();
    }
}

static void with_a_minimum_of_one_nobody_takes_over(void **state)
{
    (void)state;
    begin(3, 1, 1);
    cut_off(0, true);
    run_for(30000);
    assert_int_equal(live(), 1); /* the host alone */
    assert_true(sim.nodes[0].world != 0);
    end();
}

static void a_host_in_the_minority_starts_no_world_with_newcomers(void **state)
{
    (void)state;
    begin(4, 2, 1);
    power_off(3); /* comes again, as another one, on the host's side */
    run_for(9000);
    assert_int_equal(live(), 3);
    for (int i = 1; i <= 2; i++)
        sim.is_cut[0][i] = sim.is_cut[i][0] = sim.is_cut[3][i] = sim.is_cut[i][3] =
            true;
    power_on(3);
    run_for(15000);
    assert_int_equal(live(), 2);
    assert_true(sim.nodes[0].world == 0 && sim.nodes[3].world == 0);
    end();
}

static void change_something(void)
{
    const int at = (int)draw((uint64_t)sim.count);
    const int other = (int)draw((uint64_t)sim.count);

    switch (draw(9)) {
    case 0:
        if (sim.nodes[at].is_on && draw(3) == 0)
            power_off(at);
        break;
    case 1:
    case 2:
        if (!sim.nodes[at].is_on && at != sim.host)
            power_on(at);
        break;
    case 3: cut_off(at, true); break;
    case 4: cut_off(at, false); break;
    case 5:
        if (at != other)
            sim.is_cut[at][other] = !sim.is_cut[at][other];
        break;
    case 6: memset(sim.is_cut, 0, sizeof sim.is_cut); break;
    case 7: /* a new round is asked for */
        if (sim.nodes[at].is_up)
            post(CT_MESSAGE_RESTART, at, sim.nodes[at].server, true,
                 sim.nodes[at].link);
        break;
    case 8: /* two sides */
        for (int i = 0; i < sim.count; i++)
            for (int j = 0; j < sim.count; j++)
                sim.is_cut[i][j] = (i < at) != (j < at);
        break;
    }
}

static uint64_t from_environment(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : fallback;
}

static void whatever_is_cut_there_are_never_two_worlds(void **state)
{
    const uint64_t first = from_environment("CTRUN_SIM_SEED", 1);
    const uint64_t count = from_environment("CTRUN_SIM_COUNT", 300);
    size_t worlds = 0, heirs = 0;

    (void)state;
    for (uint64_t seed = first; seed < first + count; seed++) {
        begin(3 + (int)(seed % 5), 1 + (uint32_t)(seed / 5 % 3), seed);
        for (int i = 0; i < 40; i++) {
            change_something();
            run_for(200 + draw(draw(2) ? 2000 : 9000));
        }
        for (int i = 0; i < sim.count; i++)
            heirs += sim.nodes[i].is_on && sim.nodes[i].is_heir && sim.nodes[i].world;
        worlds += sim.worlds;
        end();
    }
    print_message("%zu worlds in %llu stories, %zu of an heir at the end\n", worlds,
                  (unsigned long long)count, heirs);
    assert_true(worlds > count);
    assert_true(heirs > 0 || count < 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_the_host_go_on_within_ten_seconds),
        cmocka_unit_test(with_a_minimum_of_one_nobody_takes_over),
        cmocka_unit_test(a_host_in_the_minority_starts_no_world_with_newcomers),
        cmocka_unit_test(whatever_is_cut_there_are_never_two_worlds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
