/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold, by the true time. The numbers are those of ctrun-architecture(7). */
#include <string.h>

#include "agent/worker/worker_group_private.h"
#include "rendezvous/round/round_limits.h"
#include "rendezvous/session/session_limits.h"
#include "tests/lib/test.h"
#include "tests/sim/world.h"

enum {
    CONNS = 61,
    SEQUENCES = 4,
    RUNS = 2,
    LISTENS_MS = RUN_HA_LISTEN_MS + RUN_HA_LISTEN_MS / 10,
};

struct arrival {
    const void *conn;
    uint64_t sequence, at_us;
};

/* The last world of a run that was sent to agents. */
struct told {
    uint64_t instance, generation;
    uint32_t restarts;
    bool has_verdict;
    uint8_t outcome;
    uint64_t resized; /* the instance whose resize was sent; 0: none */
    uint32_t min_nodes, max_nodes;
};

struct world_check {
    struct arrival arrivals[WORLD_NODES_MAX][CONNS][SEQUENCES];
    struct told told[RUNS];
};

void world_check_begin(void)
{
    world.check = world_alloc(sizeof *world.check);
}

void world_break(const char *what)
{
    if (!world.broken)
        world.broken = what;
    TRACE("BROKEN: %s", what);
}

/* ---- 1: one world ------------------------------------------------------------------------ */

void world_note_exception(struct world_node *node)
{
    if (node->stopped_us[PART_GUARD] &&
        (node->stopped_us[PART_AGENT] || node->has_slept) &&
        world_clock_ms(node) >= node->live_deadline_ms)
        node->is_excepted = true; /* nobody can kill them */
}

static bool is_excepted(struct world_node *node)
{
    world_note_exception(node);
    return node->is_excepted || node->stopped_us[PART_HOST];
}

void world_check_live(struct world_node *node)
{
    if (!node->live_generation || is_excepted(node))
        return;
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *other = &world.nodes[i];

        if (!other->live_generation || other->run != node->run ||
            (other->live_instance == node->live_instance &&
             other->live_generation == node->live_generation))
            continue;
        if (is_excepted(other)) {
            world.exceptions++;
            continue;
        }
        TRACE("node%d: its workers of %llu still live", i,
              (unsigned long long)other->live_generation);
        world_break("1: two worlds live");
    }
}

void world_check_start(struct world_node *node)
{
    if (node->own_instance && node->own_instance != node->live_instance)
        world_break("5: an agent has two instances");
    node->own_instance = node->live_instance;
    world_check_live(node);
}

/* ---- 9: one world of a generation: who continues when a rank is lost ---------------------- */

void world_check_rank(struct world_node *node, int local_rank)
{
    const struct world_rank *rank = &node->ranks[local_rank];

    if (is_excepted(node))
        return;
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *other = &world.nodes[i];

        if (other->live_generation != node->live_generation ||
            other->live_instance != node->live_instance || is_excepted(other))
            continue;
        for (int k = 0; k < WORLD_RANKS; k++) {
            const struct world_rank *mate = &other->ranks[k];

            if (mate->is_new)
                continue;
            if (mate->epoch == rank->epoch && mate->ranks != rank->ranks)
                world_break("9: two worlds of one epoch");
            if (mate->works && mate->epoch != rank->epoch)
                world_break("9: ranks of two epochs are at work");
        }
    }
}

static void check_ranks(const struct world_node *node)
{
    for (int i = 0; world.survives && i < WORLD_RANKS; i++)
        if (node->agent.state == AGENT_RUNNING && node->live_generation &&
            node->group->workers[i].state == WORKER_RUNNING && !node->ranks[i].works)
            world_break("9: a rank waits though the network is whole");
}

/* ---- 2: deadlines ------------------------------------------------------------------------ */

/* Only with etcd: a single server may wait longer for a paused member, and starts no world before
 * that. */
void world_check_dead(struct world_node *node)
{
    const uint64_t most_ms = ROUND_KILL_MS + ROUND_KILL_MS / 20 + 1;

    world_note_exception(node);
    if (world.has_etcd && !node->is_excepted && node->live_deadline_ms &&
        world_clock_ms(node) > node->live_deadline_ms + most_ms)
        TRACE("node%d: dead %llu ms after the deadline", node->index,
              (unsigned long long)(world_clock_ms(node) - node->live_deadline_ms));
    if (world.has_etcd && !node->is_excepted && node->live_deadline_ms &&
        world_clock_ms(node) > node->live_deadline_ms + most_ms)
        world_break("2: workers live after their deadline");
}

/* ---- 3: acknowledgements ----------------------------------------------------------------- */

static struct arrival *arrival_of(int server, const void *conn, uint64_t sequence)
{
    return &world.check
                ->arrivals[server][(uintptr_t)conn / 16 % CONNS][sequence % SEQUENCES];
}

void world_check_arrived(const struct world_node *server, const void *conn,
                         uint64_t sequence)
{
    *arrival_of(server->index, conn, sequence) = (struct arrival){conn, sequence,
                                                                  world.now_us};
}

/* True if another server may be elected in its place. */
static bool is_bound(const struct world_node *node)
{
    return world.has_ha ? leader_candidate_leads(node->candidate) : world.has_etcd;
}

static void check_ack(const struct world_node *node, const void *conn,
                      uint64_t sequence)
{
    const struct arrival *arrival = arrival_of(node->index, conn, sequence);

    if (is_bound(node) && arrival->conn == conn && arrival->sequence == sequence &&
        !world_etcd_proved(node->dispatch->term, arrival->at_us))
        world_break("3: an acknowledgement before a renewal");
}

/* ---- 4: what leaves a server ------------------------------------------------------------- */

/* It has sent messages that this run lives, and its node had a path to the other node, for as long as
 * the other node waits for them (by the slowest clock). What began later comes too late, as
 * ctrun-architecture(7) says. Three messages go that way. */
static bool has_reported(const struct world_node *node, uint64_t instance)
{
    const uint64_t for_us = (uint64_t)(LISTENS_MS + 3 * world.slow_ms) * WORLD_MS;
    const uint64_t since_us = world.now_us - for_us;

    return world.now_us > for_us && world_ha_tells(node, instance, since_us) &&
           node->woke_us < since_us && world.opened_us < since_us;
}

/* Another node sends that the run lives, and there is a path between both nodes, each way. */
static bool is_beside_one_that_tells(const struct world_node *node, uint64_t instance)
{
    for (int i = 0; i < world.node_count; i++) {
        const struct world_node *other = &world.nodes[i];

        if (other != node && other->is_up && !world_is_stopped(other, PART_AGENT) &&
            has_reported(other, instance) && !world.cut[i][node->index] &&
            !world.cut[node->index][i])
            return true;
    }
    return false;
}

static bool has_workers(uint64_t instance)
{
    for (int i = 0; i < world.node_count; i++)
        if (world.nodes[i].live_generation && world.nodes[i].live_instance == instance)
            return true;
    return false;
}

static void check_start(const struct world_node *node, struct told *told,
                        uint64_t instance, const struct ct_start *start)
{
    const bool is_new = instance != told->instance;

    if (is_bound(node) && world_etcd_generation() < start->generation)
        world_break("4: a START that is not in the journal");
    if (start->generation < told->generation && !is_new)
        world_break("4: a generation goes back");
    if (!is_new && start->restart_count < told->restarts)
        world_break("4: the restart budget goes back");
    if (!is_new && told->has_verdict)
        world_break("4: a world after the verdict");
    if (is_new && told->instance && !told->has_verdict &&
        (world.has_ha ? is_beside_one_that_tells(node, told->instance)
                      : world.has_etcd))
        world_break("7: a run is founded beside one that lives");
    /* No node could send that the run lives: ctrun-architecture(7) says that this is not covered. A
     * START to the next node comes in the same step, before the story ends. */
    world.is_excused |= is_new && told->instance && !told->has_verdict &&
                        world.has_ha && has_workers(told->instance);
    if (is_new) {
        world.instances++;
        told->has_verdict = false;
    }
    if (is_new || start->generation > told->generation)
        world.worlds++;
    told->instance = instance;
    told->generation = start->generation;
    told->restarts = start->restart_count;
}

static void check_verdict(struct told *told, uint64_t instance,
                          const struct ct_verdict *verdict)
{
    if (told->has_verdict && told->instance == instance &&
        told->outcome != verdict->outcome)
        world_break("4: two verdicts");
    told->has_verdict = true;
    told->outcome = verdict->outcome;
}

void world_check_sent(struct world_node *node, const struct world_node *client,
                      const void *conn, const struct ct_frame *frame)
{
    static union ct_message_room room;
    struct ct_message message;
    struct told *told = &world.check->told[client->run];
    const struct run *run = run_find(&node->dispatch->runs, world_run_id(client->run));
    uint64_t instance;

    if (!run || ct_message_decode(frame, &message, &room, sizeof room) < 0)
        return;
    instance = run->round->settings.instance;
    if (message.kind == CT_MESSAGE_START) {
        check_start(node, told, instance, message.start);
    } else if (message.kind == CT_MESSAGE_HEARTBEAT_ACK) {
        check_ack(node, conn, message.heartbeat->sequence);
    } else if (message.kind == CT_MESSAGE_VERDICT) {
        check_verdict(told, instance, message.verdict);
    } else {
        told->resized = instance;
        told->min_nodes = message.resize->min_nodes;
        told->max_nodes = message.resize->max_nodes;
    }
}

/* All nodes had left and sent nothing: the limits are those of the nodes that join now. */
static void forget_resize(const char *run_id)
{
    for (int i = 0; i < RUNS; i++)
        if (strcmp(run_id, world_run_id(i)) == 0)
            world.check->told[i].resized = 0;
}

int __wrap_run_renew(struct run *run, const struct ct_hello *hello);
int __real_run_renew(struct run *run, const struct ct_hello *hello);
int __wrap_run_renew(struct run *run, const struct ct_hello *hello)
{
    forget_resize(run->id);
    return __real_run_renew(run, hello);
}

struct run *__wrap_run_create(struct runs *runs, const struct ct_hello *hello, int *rc);
struct run *__real_run_create(struct runs *runs, const struct ct_hello *hello, int *rc);
struct run *__wrap_run_create(struct runs *runs, const struct ct_hello *hello, int *rc)
{
    /* Else the limits are in the journal until the run is over. */
    if (!runs->is_elected)
        forget_resize(hello->run_id);
    return __real_run_create(runs, hello, rc);
}

/* ---- 6, 8: the end ----------------------------------------------------------------------- */

void world_check_end(const struct world_node *node)
{
    if (node->exit_code != CT_EXIT_RETRY)
        world_break("8: a run that is lost ends with another code");
}

static bool has_agent(const struct world_node *node)
{
    return node->is_up && !node->has_ended && node->agent.link;
}

/* The round of the server that serves now; NULL: none. */
static const struct round *served_round(int id)
{
    for (int i = 0; i < world.node_count; i++) {
        const struct world_node *node = &world.nodes[i];
        const struct run *run = node->dispatch && node->is_up &&
                                        !node->dispatch->is_candidate
                                    ? run_find(&node->dispatch->runs, world_run_id(id))
                                    : NULL;

        if (run)
            return run->round;
    }
    return NULL;
}

bool world_check_is_served(void)
{
    return served_round(0) != NULL;
}

void world_check_silent(void)
{
    for (int i = 0; i < world.node_count; i++)
        if (has_agent(&world.nodes[i]) || world.nodes[i].live_generation)
            world_break("8: a node goes on without a server");
}

static void trace_round(const struct world_node *node, const struct round *round)
{
    TRACE("node%d: %s, %zu members, %zu ready, %zu missing, generation %llu, next "
          "%lld, fence %lld",
          node->index, round_state_name(round->state), round->members.count,
          round->counts[MEMBER_READY], round->missing_survivors,
          (unsigned long long)round->generation,
          (long long)(round_next_ms(round) - world_clock_ms(node)),
          (long long)(round->fence_ms - world_clock_ms(node)));
}

/* Nodes that live and nodes with workers, of the run with that number. */
struct count {
    uint32_t live, running;
    bool has_old, is_strange; /* is_strange: a node looks for another instance */
};

static struct count count_nodes(int run, uint64_t instance)
{
    struct count count = {0};

    for (int i = 0; i < world.node_count; i++) {
        const struct world_node *node = &world.nodes[i];

        if (node->run != run)
            continue;
        TRACE("node%d: %s, instance %llx, generation %llu%s", i,
              !has_agent(node) ? "not there" : agent_state_name(&node->agent),
              (unsigned long long)node->own_instance,
              (unsigned long long)node->live_generation,
              node->dispatch && !node->dispatch->is_candidate ? ", serves" : "");
        if (!has_agent(node)) {
            count.has_old |= node->has_ended &&
                             world.now_us - node->ended_us <
                                 2 * round_outlive_ms(world.lease_ms) * WORLD_MS;
        } else if (node->own_instance && node->own_instance != instance) {
            count.has_old = count.is_strange = true;
        } else if (world_etcd_is_orphan(node)) {
            count.has_old = true; /* a spare, which ends as the members do */
        } else {
            count.live++;
            count.running += node->agent.state == AGENT_RUNNING &&
                             node->live_instance == instance;
        }
    }
    return count;
}

static void check_run(int run)
{
    const struct told *told = &world.check->told[run];
    const struct round *round = served_round(run);
    const uint64_t instance = round ? round->settings.instance : 0;
    const uint32_t min = round ? round->settings.min_nodes : world.min_nodes;
    const uint32_t max = round ? round->settings.max_nodes : world.max_nodes;
    const struct count count = count_nodes(run, instance);

    TRACE("whole: %u of instance %llx live, %u run; MIN %u, MAX %u", count.live,
          (unsigned long long)instance, count.running, min, max);
    for (int i = 0; i < world.node_count; i++)
        if (has_agent(&world.nodes[i]))
            check_ranks(&world.nodes[i]);
    for (int i = 0; i < world.node_count && world_traces(); i++)
        if (world.nodes[i].is_up && world.nodes[i].dispatch &&
            run_find(&world.nodes[i].dispatch->runs, "job"))
            trace_round(&world.nodes[i],
                        run_find(&world.nodes[i].dispatch->runs, "job")->round);
    /* With --ha: the etcd was lost, or nodes of the old run have still to end, or nobody serves at
     * the endpoint. */
    if (world.has_ha &&
        (!world_etcd_has_quorum() || count.has_old || !world_serves(&world.nodes[0])))
        return;
    if (round && told->resized == instance &&
        (min != told->min_nodes || max != told->max_nodes))
        world_break("4: a resize that was told of is lost");
    if (world.has_etcd && count.is_strange)
        world_break("6: a server knows nothing of a live node's instance");
    if (!world.has_etcd && (!world_serves(&world.nodes[0]) || count.has_old))
        return;
    if (count.live >= min && count.running != (count.live < max ? count.live : max))
        world_break("6: a live node is in no world though the network is whole");
    if (count.live < min && count.running > 0)
        world_break("6: a world of fewer than MIN");
}

/* ---- What nodes do about a lost server --------------------------------------------------- */

static bool failovers[FAILOVER_STATES][FAILOVER_STATES]; /* in any story: from, to */

unsigned __wrap_failover_next(struct failover *failover, enum failover_event event,
                              const struct failover_facts *facts);
unsigned __real_failover_next(struct failover *failover, enum failover_event event,
                              const struct failover_facts *facts);
unsigned __wrap_failover_next(struct failover *failover, enum failover_event event,
                              const struct failover_facts *facts)
{
    const struct world_node *node = world.current;
    const enum failover_state before = failover->state;
    const unsigned actions = __real_failover_next(failover, event, facts);

    failovers[before][failover->state] = true;
    if (failover->state != before)
        TRACE("node%d: failover: %s -> %s", node->index, failover_state_name(before),
              failover_state_name(failover->state));
    if (actions & FAILOVER_CONNECT && failover_has_sought(failover))
        world_break("a node waits once more for what it has looked for in vain");
    if (actions & (FAILOVER_JOIN | FAILOVER_CONNECT) && node->live_generation)
        world_break("a node with live workers comes as a new one");
    return actions;
}

/* These transitions need a signal, workers that succeed, or a second search that ends before the
 * workers do: unit/failover_test has them. */
static bool is_unplayed(enum failover_state from, enum failover_state to)
{
    return (to == FAILOVER_OVER && from != FAILOVER_FIRST && from != FAILOVER_SEEKING &&
            from != FAILOVER_FENCING && from != FAILOVER_RETURNING) ||
           (to == FAILOVER_FENCING && from == FAILOVER_FOUND);
}

bool world_check_failovers(void)
{
    bool is_all = true;

    for (enum failover_state from = 0; from < FAILOVER_STATES; from++)
        for (enum failover_state to = 0; to < FAILOVER_STATES; to++)
            if (failover_is_edge(from, to) && !is_unplayed(from, to) &&
                !failovers[from][to]) {
                print_message("no story goes from %s to %s\n",
                              failover_state_name(from), failover_state_name(to));
                is_all = false;
            }
    return is_all;
}

/* ---- The end, of all runs ---------------------------------------------------------------- */

void world_check_whole(void)
{
    check_run(0);
    if (world.has_daemon)
        check_run(1);
}
