/* SPDX-License-Identifier: Apache-2.0 */
/* --ha: the thread of launcher/ha/ on each node, with the product's candidate, relay and agents.
 *
 *     the founder serves ── three nodes have reported ── their members run ── it is elected there and
 *     its journal is written ── all nodes get the plan ── etcd decides; a lost member is replaced
 *
 * The steps before the members start are shortened. What a node may do when, and what it sends, is as
 * in ha_lead.c, ha_member.c and ha_messenger.c. */
#include <string.h>
#include <sys/socket.h>

#include "agent/link/handshake.h"
#include "tests/sim/world.h"
#include "worker_sdk/base/clock.h"

enum {
    MEMBERS = 3,
    NODES = 8,
    TICK_MS = 200,
    START_MS = 500, /* of a member, up to twice as long */
    MESSENGER_MS = 1000,
    LOST_MS = 5000,
    STEP_MS = 20000,
};

enum step {
    STEP_WAITING,
    STEP_STARTING,
    STEP_MOVING,
    STEP_ACTIVE,
};

struct reporter {
    uint64_t peer;
    struct ct_ha_report report;
};

struct world_ha {
    struct world_node *node;
    struct ha_hooks hooks;
    struct loop_watch *wake;
    struct loop_timer *timer;
    uint64_t key;
    bool is_founder, finds, leads, is_running;
    enum step step;
    uint64_t since_ms, running_ms, messenger_ms, instance, generation;
    uint64_t absent_ms[MEMBERS];
    uint64_t
        tells_us; /* since when it sends to the endpoint that the run lives; 0: never */
    struct ct_ha_plan plan, made, found;
    struct reporter nodes[NODES];
    size_t count;
};

static struct world_ha has[WORLD_NODES_MAX];

/* Made of the node's number and its program's. */
static uint64_t key_of(const struct world_node *node)
{
    return (uint64_t)node->life << 8 | (uint64_t)(node->index + 1);
}

static struct world_node *node_of(uint64_t key)
{
    return &world.nodes[(key & 0xff) - 1];
}

static int find_member(const struct ct_ha_plan *plan, uint64_t key)
{
    for (int i = 0; i < plan->count; i++)
        if (plan->members[i].key == key)
            return i;
    return -1;
}

/* ---- What the server and the agent report ------------------------------------------------ */

static struct reporter *find_reporter(struct world_ha *ha, uint64_t peer)
{
    for (size_t i = 0; i < ha->count; i++)
        if (ha->nodes[i].peer == peer)
            return &ha->nodes[i];
    return NULL;
}

static void on_report(void *context, uint64_t peer, const struct ct_ha_report *report)
{
    struct world_ha *ha = context;
    struct reporter *reporter = find_reporter(ha, peer);

    if (!reporter && ha->count < NODES)
        reporter = &ha->nodes[ha->count++];
    if (reporter)
        *reporter = (struct reporter){peer, *report};
}

static void on_gone(void *context, uint64_t peer)
{
    struct world_ha *ha = context;
    struct reporter *reporter = find_reporter(ha, peer);

    if (reporter)
        memmove(reporter, reporter + 1,
                (size_t)(&ha->nodes[--ha->count] - reporter) * sizeof *reporter);
}

static void on_found(void *context, const struct ct_ha_plan *plan)
{
    struct world_ha *ha = context;

    ha->found = *plan;
}

static bool fill_report(void *context, const struct ct_addr *local, uint64_t instance,
                        uint64_t generation, struct ct_ha_report *out)
{
    struct world_ha *ha = &has[((struct world_node *)context)->index];

    (void)local;
    ha->instance = instance;
    ha->generation = generation;
    *out = (struct ct_ha_report){.key = ha->key,
                                 .addr = "10.0.0.1",
                                 .client_port = 1024,
                                 .peer_port = 1025,
                                 .is_running = ha->is_running,
                                 .follows = ha->finds ? ha->plan.epoch : 0};
    return true;
}

static void on_plan(void *context, const struct ct_ha_plan *plan)
{
    has[((struct world_node *)context)->index].plan = *plan;
}

static bool finds(void *context)
{
    return has[((struct world_node *)context)->index].finds;
}

int __wrap_dup(int fd)
{
    return fd;
}

ssize_t __wrap_read(int fd, void *buffer, size_t length)
{
    (void)fd;
    memset(buffer, 0, length);
    return (ssize_t)length;
}

static void wake(void *context)
{
    const struct world_ha *ha = context;

    world_wake(ha->node->agent.ha_wake);
}

static void tell(struct world_ha *ha, const struct ct_ha_plan *plan)
{
    ha_relay_send(&ha->node->dispatch->ha, &ha->node->dispatch->runs, plan);
    if (ha->node->dispatch->commit)
        output_commit_release(ha->node->dispatch->commit);
}

/* ---- This node's member, and following --------------------------------------------------- */

static void keep_member(struct world_ha *ha)
{
    const bool is_member = find_member(&ha->plan, ha->key) >= 0;

    if (!is_member || ha->is_running)
        return;
    if (ha->running_ms == 0)
        ha->running_ms = ct_now_ms() + START_MS + world_draw(START_MS);
    if (ct_now_ms() < ha->running_ms)
        return;
    ha->is_running = true;
    world_call(ha->node, 0, wake, ha);
}

static void follow(struct world_ha *ha)
{
    if (ha->finds || ha->plan.phase != CT_HA_ACTIVE)
        return;
    if (!ha->is_founder)
        world_stand(ha->node);
    ha->finds = true;
    world_call(ha->node, 0, wake, ha);
}

/* ---- The plan ---------------------------------------------------------------------------- */

static const struct ct_ha_report *report_of(const struct world_ha *ha, uint64_t key)
{
    for (size_t i = 0; i < ha->count; i++)
        if (ha->nodes[i].report.key == key)
            return &ha->nodes[i].report;
    return NULL;
}

static bool name_idle(struct world_ha *ha)
{
    for (size_t i = 0; i < ha->count; i++) {
        const uint64_t key = ha->nodes[i].report.key;

        if (find_member(&ha->made, key) >= 0)
            continue;
        ha->made.members[ha->made.count++] = (struct ct_ha_member){
            .addr = "10.0.0.1", .key = key, .client_port = 1024, .peer_port = 1025};
        return true;
    }
    return false;
}

static void set_step(struct world_ha *ha, enum step step)
{
    TRACE("node%d: --ha: step %d", ha->node->index, (int)step);
    ha->step = step;
    ha->since_ms = ct_now_ms();
}

static void drop(struct world_ha *ha)
{
    leader_candidate_revert(ha->node->candidate);
    ha->made.phase = CT_HA_OFF;
    ha->made.count = 0;
    tell(ha, &ha->made);
    set_step(ha, STEP_WAITING);
}

static void begin(struct world_ha *ha)
{
    if (ha->count < MEMBERS)
        return;
    ha->made = (struct ct_ha_plan){
        .phase = CT_HA_STARTING, .nodes = MEMBERS, .epoch = world_draw(UINT32_MAX) | 1};
    while (ha->made.count < MEMBERS && name_idle(ha))
        ;
    tell(ha, &ha->made);
    set_step(ha, STEP_STARTING);
}

static void move(struct world_ha *ha)
{
    int nodes[MEMBERS];

    for (int i = 0; i < MEMBERS; i++) {
        const struct ct_ha_report *report = report_of(ha, ha->made.members[i].key);

        nodes[i] = node_of(ha->made.members[i].key)->index;
        if (!report || !report->is_running)
            return;
    }
    world_etcd_found(nodes, MEMBERS);
    world_stand(ha->node);
    set_step(ha, STEP_MOVING);
}

static void commit(struct world_ha *ha)
{
    if (!leader_candidate_commit(ha->node->candidate))
        return;
    ha->made.phase = CT_HA_ACTIVE;
    tell(ha, &ha->made);
    set_step(ha, STEP_ACTIVE);
}

/* Replaces a member that has not reported for five seconds by a node that has; in one step. */
static void replace(struct world_ha *ha)
{
    for (int i = 0; i < ha->made.count; i++) {
        const bool is_here = report_of(ha, ha->made.members[i].key) != NULL;

        if (is_here || ha->absent_ms[i] == 0)
            ha->absent_ms[i] = is_here ? 0 : ct_now_ms();
        if (is_here || ct_now_ms() - ha->absent_ms[i] < LOST_MS ||
            ha->made.count >= CT_HA_MEMBERS_MAX || !name_idle(ha))
            continue;
        ha->made.members[i] = ha->made.members[--ha->made.count];
        if (!world_etcd_replace(ha->node, i, node_of(ha->made.members[i].key)->index))
            return;
        ha->absent_ms[i] = 0;
        tell(ha, &ha->made);
        return;
    }
}

static void lead(struct world_ha *ha)
{
    if (ha->is_founder && ha->step < STEP_ACTIVE) {
        if (ha->step == STEP_WAITING)
            begin(ha);
        else if (ct_now_ms() - ha->since_ms >= STEP_MS)
            drop(ha);
        else if (ha->step == STEP_STARTING)
            move(ha);
        else
            commit(ha);
        return;
    }
    if (leader_candidate_leads(ha->node->candidate) && !ha->leads) {
        if (ha->made.epoch == 0)
            ha->made = ha->plan;
        tell(ha, &ha->made);
    }
    ha->leads = leader_candidate_leads(ha->node->candidate);
    if (ha->leads)
        replace(ha);
}

/* ---- For a founder that starts the run anew ---------------------------------------------- */

struct messenger {
    struct loop_watch *watch;
    struct world_ha *ha;
    bool has_reported;
};

static void tell_founder(void *context, unsigned events)
{
    struct messenger *messenger = context;
    struct world_ha *ha = messenger->ha;
    const struct ct_ha_plan *plan = ha->leads ? &ha->made : &ha->plan;
    const struct ct_resume nobody = {
        .id = 0, .key = plan->epoch, .generation = ha->generation};
    struct ct_hello hello = {.instance = ha->instance, .generation = ha->generation};
    struct handshake handshake = {0};
    const struct ct_message message = {CT_MESSAGE_HA_PLAN, .ha_plan = plan};
    struct ct_buf out;

    (void)events;
    if (messenger->has_reported) {
        loop_watch_close(messenger->watch); /* it has answered, or closed */
        return;
    }
    messenger->has_reported = true;
    memcpy(hello.run_id, "job", sizeof "job");
    memcpy(hello.host, "messenger", sizeof "messenger");
    ct_buf_init(&out, 1 << 20);
    if (handshake_begin(&handshake, &nobody, &hello, &out) == 0 &&
        ct_message_encode(&out, &message) == 0)
        (void)send(loop_watch_fd(messenger->watch), ct_buf_data(&out),
                   ct_buf_length(&out), 0);
    ct_buf_deinit(&out);
}

static bool tells(const struct world_ha *ha)
{
    return ha->finds && ha->node->index != 0 && (ha->is_running || ha->leads) &&
           ha->instance != 0 && world.now_us >= world.mute_until_us;
}

bool world_ha_tells(const struct world_node *node, uint64_t instance, uint64_t since_us)
{
    const struct world_ha *ha = &has[node->index];

    return ha->tells_us != 0 && ha->tells_us <= since_us && ha->instance == instance;
}

static void send_messenger(struct world_ha *ha)
{
    const struct ct_addr *founder = ha->node->options.server;
    struct messenger *messenger;
    int fd;

    ha->messenger_ms = ct_now_ms() + MESSENGER_MS;
    if (!ha->leads)
        tell(ha, &ha->plan);
    if (!tells(ha))
        return;
    messenger = world_alloc(sizeof *messenger);
    messenger->ha = ha;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    (void)connect(fd, &founder->any, founder->length);
    messenger->watch = loop_watch_open(NULL, fd, tell_founder, messenger);
    loop_watch_for(messenger->watch, LOOP_READ);
}

/* Another node has sent that the run lives there, while this node starts it anew. */
static void take_found(struct world_ha *ha)
{
    const struct ct_ha_plan found = ha->found;

    ha->found.epoch = 0;
    if (found.epoch == 0 || !ha->is_founder || ha->finds || ha->step >= STEP_ACTIVE)
        return;
    TRACE("node%d: --ha: the run lives elsewhere", ha->node->index);
    if (ha->step != STEP_WAITING)
        leader_candidate_revert(ha->node->candidate);
    ha->is_founder = false;
    ha->step = STEP_WAITING;
    ha->made = (struct ct_ha_plan){0};
    dispatch_step_down(ha->node->dispatch);
    leader_candidate_stand_down(ha->node->candidate);
    ha_relay_send(&ha->node->dispatch->ha, &ha->node->dispatch->runs, &found);
    ha->plan = found;
}

/* ---- The thread -------------------------------------------------------------------------- */

static void on_tick(void *context)
{
    struct world_ha *ha = context;

    take_found(ha);
    keep_member(ha);
    follow(ha);
    lead(ha);
    if (!tells(ha))
        ha->tells_us = 0;
    else if (ha->tells_us == 0)
        ha->tells_us = world.now_us;
    if (ha->finds && ct_now_ms() >= ha->messenger_ms)
        send_messenger(ha);
    loop_timer_set(ha->timer, TICK_MS);
}

void world_ha_open(struct world_node *node)
{
    struct world_ha *ha = &has[node->index];

    *ha = (struct world_ha){.node = node,
                            .key = key_of(node),
                            .is_founder = node->index == 0,
                            .hooks = {.context = ha,
                                      .on_report = on_report,
                                      .on_gone = on_gone,
                                      .on_found = on_found}};
    node->dispatch->ha.hooks = &ha->hooks;
    node->dispatch->runs.has_ha = true;
    if (ha->is_founder) {
        leader_candidate_serve(node->candidate, world_server(node));
        (void)server_lead(world_server(node), 0, NULL, 0, 0, NULL);
    }
    ha->timer = loop_timer_open(NULL, on_tick, ha);
    loop_timer_set(ha->timer, TICK_MS);
}

void world_ha_fill(struct agent_options *options)
{
    options->ha = (struct agent_ha){.nodes = MEMBERS,
                                    .wake_fd = WORLD_WAKE_FD,
                                    .fill_report = fill_report,
                                    .on_plan = on_plan,
                                    .finds = finds};
}
