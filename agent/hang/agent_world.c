/* SPDX-License-Identifier: Apache-2.0 */
/* --survive over several nodes: the server decides who continues (rendezvous/round/round_running.c), by the
 * messages of all agents.
 *
 *     here                                         sent to the server
 *     a worker fails                               LOSS; the server sends it to all nodes: then the other workers
 *                                                  are told, and freed from collectives at once (--survive=torch)
 *     all workers that run ask, and nothing of     STILL, with those that run
 *     a lost one lives
 *     a LOSS comes                                 (all workers are told); if a whole node is lost and no worker here
 *                                                  has ever used the worker socket: LOSS with rank -1
 *     a WORLD comes                                (those that asked are told; it is the next world)
 *     --survive-replace: the new worker in a       GROW, and the new worker is in STILL from then on
 *     lost rank's place asks
 *     a GROW comes                                 (all workers are told, and ask)
 *     we take the place of a lost node             STILL without our ranks, once they run; then as for a new worker
 *                                                  in a lost rank's place
 *     survive_ms after a LOSS of ours, no WORLD    FAILURE: the first of our losses that is not decided
 *
 * STILL holds until the next WORLD: the workers do nothing before. Only a LOSS of ours withdraws STILL; if that LOSS
 * and a WORLD cross, the lost rank is in that world, and another world follows. */
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/worker/worker.h"

static void emit_loss(const struct ct_failure *failure, int left)
{
    ct_event_emit("rank_lost", CT_INT("generation", failure->generation),
                  CT_INT("rank", failure->rank), CT_INT("worker_pid", failure->pid),
                  CT_STR("cause", ct_cause_name(failure->cause)),
                  CT_INT("code", failure->code), CT_INT("left", left));
}

static void emit_world(const struct agent *agent, int left, int64_t after_ms)
{
    ct_event_emit("world_shrunk", CT_INT("generation", agent->start.generation),
                  CT_INT("epoch", agent->survival.epoch),
                  CT_INT("losses", agent->survival.losses), CT_INT("left", left),
                  CT_INT("after_ms", after_ms));
}

static void emit_grown(const struct agent *agent, int joined, int size)
{
    ct_event_emit("world_grown", CT_INT("generation", agent->start.generation),
                  CT_INT("epoch", agent->survival.epoch), CT_INT("joined", joined),
                  CT_INT("size", size));
}

void agent_report_lost(struct agent *agent, const struct ct_failure *failure, int left)
{
    const struct agent_options *options = agent->options;

    emit_loss(failure, left);
    agent_recovery_lose(agent, failure);
    if (options->on_rank_lost)
        options->on_rank_lost(options->context, failure, left);
}

void agent_report_shrunk(struct agent *agent, int left, int64_t after_ms)
{
    const struct agent_options *options = agent->options;

    emit_world(agent, left, after_ms > 0 ? after_ms : 0);
    agent_recovery_decide(agent);
    if (options->on_shrunk)
        options->on_shrunk(options->context, left, after_ms);
}

void agent_report_grown(struct agent *agent, int joined, int size)
{
    const struct agent_options *options = agent->options;

    emit_grown(agent, joined, size);
    agent_recovery_join(agent);
    if (options->on_grown)
        options->on_grown(options->context, joined, size);
}

static int count_ranks(const uint8_t ranks[CT_WORLD_BYTES])
{
    int count = 0;

    for (int i = 0; i < CT_WORLD_BYTES; i++)
        count += __builtin_popcount(ranks[i]);
    return count;
}

/* `message` has neither the ranks of the lost node nor ours yet. It may come before START, because
 * the link may hold START back (link_lease.c). */
static void begin_outside(struct agent *agent, const struct ct_world *message)
{
    agent->survival.epoch = message->epoch;
    agent->survival.losses = agent->survival.decided = message->losses;
    agent->survival.left = count_ranks(message->ranks);
    memcpy(agent->survival.ranks, message->ranks, sizeof agent->survival.ranks);
}

/* The state here may be of an older round: other nodes may start their workers sooner. */
static void renew(struct agent *agent)
{
    const struct ct_start *start = &agent->start;

    if (agent->survival.generation == start->generation)
        return;
    agent->survival.generation = start->generation;
    agent->survival.losses = agent->survival.epoch = agent->survival.decided = 0;
    agent->survival.left = (int)start->world_size;
    memset(agent->survival.ranks, 0, sizeof agent->survival.ranks);
    for (uint32_t i = 0; i < start->world_size && i < CT_WORLD_BYTES * 8; i++)
        agent->survival.ranks[i / 8] |= (uint8_t)(1u << i % 8);
    agent->survival.still.generation = 0;
    agent->survival.has_lost_store = false;
    agent->survival.is_outside = start->is_new;
    if (start->is_new && agent->survival.early.generation == start->generation)
        begin_outside(agent, &agent->survival.early);
}

bool agent_is_outside(struct agent *agent)
{
    if (!agent->start.is_new)
        return false;
    renew(agent);
    return agent->survival.is_outside && agent->survival.left > 0;
}

bool agent_is_undecided(const struct agent *agent)
{
    return worker_group_find_loss(agent->group) ||
           (agent_shares_world(agent) &&
            agent->survival.losses > agent->survival.decided);
}

static bool is_in(const uint8_t ranks[CT_WORLD_BYTES], int rank)
{
    return rank >= 0 && rank < CT_WORLD_BYTES * 8 && ranks[rank / 8] & 1u << rank % 8;
}

static void send_loss(struct agent *agent, const struct ct_failure *failure)
{
    struct ct_loss loss = {
        .generation = failure->generation, .rank = failure->rank, .count = 1};

    (void)ct_format(loss.text, sizeof loss.text,
                    "rank %d (pid %d on %.64s) is lost: %s %d", failure->rank,
                    (int)failure->pid, failure->host, ct_cause_name(failure->cause),
                    failure->code);
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_LOSS, .loss = &loss});
}

static void send_still(struct agent *agent)
{
    link_send(agent->link,
              &(struct ct_message){CT_MESSAGE_STILL, .still = &agent->survival.still});
}

bool agent_lose_rank(struct agent *agent, const struct ct_failure *failure)
{
    bool was_in;

    renew(agent);
    was_in = is_in(agent->survival.ranks, failure->rank);
    if (agent->start.world_size > CT_WORLD_BYTES * 8 ||
        agent->survival.left <= was_in || !worker_socket_was_used(agent->worker_socket))
        return false;
    if (!agent_is_undecided(agent))
        agent->survival.since_ms = ct_now_ms();
    agent->survival.left -= was_in;
    worker_group_forget_new(agent->group, failure->rank);
    agent->survival.still.generation = 0;
    loop_timer_set(agent->survival.timer, agent->options->survive_ms);
    send_loss(agent, failure);
    agent_cut_now(agent);
    agent_report_lost(agent, failure, agent->survival.left);
    return true;
}

/* Sent once for each decision, and again only if the ranks that wait have changed. */
void agent_send_still(struct agent *agent)
{
    struct ct_still *sent = &agent->survival.still;
    struct ct_still still = {.generation = agent->start.generation};
    int count;

    renew(agent);
    still.epoch = agent->survival.epoch;
    count = worker_group_list_still(agent->group, still.ranks, sizeof still.ranks);
    if (count < 0 || (count == 0 && !worker_group_find_loss(agent->group) &&
                      !worker_group_has_new(agent->group)))
        return; /* some worker is at work, or all have ended */
    if (sent->generation == still.generation && sent->epoch == still.epoch &&
        memcmp(sent->ranks, still.ranks, sizeof still.ranks) == 0)
        return;
    *sent = still;
    send_still(agent);
}

/* In the original order: a LOSS before the STILL without its rank. */
void agent_send_survival_again(struct agent *agent)
{
    if (!agent->options->survive_ms || !agent_shares_world(agent))
        return;
    renew(agent);
    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (worker->is_lost && !worker->is_survived)
            send_loss(agent, &worker->failure);
        else if (worker->is_new && worker->asks)
            agent_send_grow(agent, worker->rank);
    }
    if (agent->survival.still.generation != 0)
        send_still(agent);
}

void agent_begin_world(struct agent *agent)
{
    renew(agent);
    if (agent->survival.losses > agent->survival.decided)
        worker_socket_send_rank_loss(agent->worker_socket, agent->survival.losses,
                                     agent->survival.text);
}

static bool is_own(const struct agent *agent, int32_t rank)
{
    const uint32_t base = agent->start.rank_base;

    return rank >= 0 && (uint32_t)rank >= base &&
           (uint32_t)rank - base < agent->options->join.slots;
}

static void emit_node(const struct agent *agent, const struct ct_loss *message)
{
    ct_event_emit("ranks_lost", CT_INT("generation", message->generation),
                  CT_INT("count", message->count), CT_INT("left", agent->survival.left),
                  CT_STR("text", message->text));
}

/* The ranks of a lost node are lost with it: no other message names them. */
static void on_lost_node(struct agent *agent, const struct ct_loss *message)
{
    const struct agent_options *options = agent->options;
    const struct ct_loss never = {.generation = message->generation, .rank = -1};

    emit_node(agent, message);
    if (!worker_socket_was_used(agent->worker_socket) && !agent->survival.is_outside)
        link_send(agent->link, &(struct ct_message){CT_MESSAGE_LOSS, .loss = &never});
    else if (options->on_node_lost)
        options->on_node_lost(options->context, message->text, agent->survival.left);
}

static bool is_for_us(const struct agent *agent, uint64_t generation)
{
    return agent->options->survive_ms && agent->state == AGENT_RUNNING &&
           generation == agent->start.generation;
}

/* `losses` counts the losses of the round, and the server sends them in order: a LOSS whose count
 * is not higher is known. agent_lose_rank() has removed our own ranks from `left`. */
void agent_on_loss(struct agent *agent, const struct ct_loss *message)
{
    if (!is_for_us(agent, message->generation))
        return;
    renew(agent);
    if (message->losses <= agent->survival.losses)
        return; /* sent again after a broken connection */
    if (!agent_is_undecided(agent))
        agent->survival.since_ms = ct_now_ms();
    agent->survival.losses = message->losses;
    if (message->rank < 0)
        agent->survival.left -= (int)message->count;
    else if (!is_own(agent, message->rank))
        agent->survival.left -= is_in(agent->survival.ranks, message->rank);
    if (agent->survival.left < 0) /* `count` includes ranks that ended with 0 */
        agent->survival.left = 0;
    (void)ct_copy(agent->survival.text, sizeof agent->survival.text,
                  message->text); /* same size */
    if (message->rank < 0 || !is_own(agent, message->rank))
        agent_recovery_lose(agent, NULL);
    agent->survival.has_lost_store |= message->has_store;
    worker_socket_send_rank_loss(agent->worker_socket, message->losses, message->text);
    agent_cut_now(agent);
    if (message->rank < 0)
        on_lost_node(agent, message);
    if (worker_group_find_loss(agent->group))
        loop_timer_set(agent->survival.timer, agent->options->survive_ms);
    agent_send_still(agent);
}

/* False: the new world has new workers only. They have no state to continue with: all members have
 * ended, so the new workers end, too. */
static bool goes_on(const struct agent *agent, const struct ct_world *message)
{
    for (size_t i = 0; i < sizeof message->ranks; i++)
        if (message->ranks[i] & agent->survival.ranks[i])
            return true;
    return false;
}

/* A worker that asked while our STILL was on its way is in no STILL yet. */
static void send_grow_again(struct agent *agent)
{
    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (worker->is_new && worker->asks)
            agent_send_grow(agent, worker->rank);
    }
    agent_send_still(agent);
}

static void emit_store(const struct agent *agent)
{
    ct_event_emit("worker_store_moved", CT_INT("generation", agent->start.generation),
                  CT_INT("epoch", agent->survival.epoch),
                  CT_STR("master_addr", agent->start.master_addr),
                  CT_INT("master_port", agent->start.master_port));
}

/* Workers that are started later get the new address; those that run and have asked get it with WORLD. With
 * --survive=torch a new worker that has not asked may be connecting to the lost store: another worker is started in its
 * place. A worker that uses the SDK asks before it connects. */
static void move_store(struct agent *agent, const struct ct_world *message)
{
    struct ct_start *start = &agent->start;

    agent->survival.has_lost_store = false;
    if (message->store_port == 0 ||
        (message->store_port == start->master_port &&
         strcmp(message->store_addr, start->master_addr) == 0))
        return;
    start->master_port = message->store_port;
    memcpy(start->master_addr, message->store_addr, sizeof start->master_addr);
    worker_group_move_store(agent->group, start);
    if (agent->options->frees_peers)
        worker_group_renew_new(agent->group);
    emit_store(agent);
}

/* The losses that `message` counts are decided; if no member is left, one of the losses is the
 * failure. */
static void on_world(struct agent *agent, const struct ct_world *message)
{
    struct ct_worker_world world = {.epoch = message->epoch, .losses = message->losses};
    struct ct_failure *loss = worker_group_find_loss(agent->group);

    if (!goes_on(agent, message)) {
        if (loss)
            agent_report_failure(agent, loss);
        else
            worker_group_end_new(agent->group);
        return;
    }
    memcpy(world.ranks, message->ranks, sizeof world.ranks);
    world.store_port = message->store_port;
    memcpy(world.store_addr, message->store_addr, sizeof world.store_addr);
    worker_group_on_world(agent->group, world.ranks, sizeof world.ranks);
    if (!worker_group_find_loss(agent->group))
        loop_timer_stop(agent->survival.timer);
    agent_stop_cutting(agent);
    worker_socket_send_world(agent->worker_socket, &world);
    send_grow_again(agent);
}

static bool has_own(const struct agent *agent)
{
    for (uint32_t i = 0; i < agent->options->join.slots; i++)
        if (is_in(agent->survival.ranks, (int)(agent->start.rank_base + i)))
            return true;
    return false;
}

static int count_joined(const struct agent *agent, const struct ct_world *message)
{
    uint8_t joined[CT_WORLD_BYTES];

    for (size_t i = 0; i < sizeof joined; i++)
        joined[i] = message->ranks[i] & (uint8_t)~agent->survival.ranks[i];
    return count_ranks(joined);
}

/* survival.ranks is replaced last: on_world() compares `message` with it. */
void agent_on_world(struct agent *agent, const struct ct_world *message)
{
    int64_t after_ms;
    bool is_loss;
    int joined;

    if (message->generation > agent->start.generation)
        agent->survival.early = *message;
    if (!is_for_us(agent, message->generation))
        return;
    renew(agent);
    if (message->epoch <= agent->survival.epoch)
        return;
    if (agent->start.is_new && agent->survival.epoch == 0) {
        begin_outside(agent, message);
        agent_send_still(agent); /* again, for this epoch */
        return;
    }
    is_loss = agent_is_undecided(agent);
    after_ms = is_loss ? (int64_t)(ct_now_ms() - agent->survival.since_ms) : -1;
    joined = count_joined(agent, message);
    agent->survival.epoch = message->epoch;
    agent->survival.decided = message->losses;
    if (message->losses > agent->survival.losses)
        agent->survival.losses = message->losses;
    agent->survival.left = count_ranks(message->ranks);
    agent->survival.still.generation = 0;
    move_store(agent, message);
    on_world(agent, message);
    memcpy(agent->survival.ranks, message->ranks, sizeof agent->survival.ranks);
    agent->survival.is_outside &= !has_own(agent);
    if (agent->survival.left > joined && (is_loss || joined == 0))
        agent_report_shrunk(agent, agent->survival.left - joined, after_ms);
    if (agent->survival.left > joined && joined > 0)
        agent_report_grown(agent, joined, agent->survival.left);
}

/* ---- One more ---------------------------------------------------------------------------- */

void agent_send_grow(struct agent *agent, int rank)
{
    const struct ct_grow grow = {.generation = agent->start.generation, .rank = rank};

    link_send(agent->link, &(struct ct_message){CT_MESSAGE_GROW, .grow = &grow});
}

void agent_on_grow(struct agent *agent, const struct ct_grow *message)
{
    if (!is_for_us(agent, message->generation))
        return;
    renew(agent);
    if (!is_in(agent->survival.ranks, message->rank))
        worker_socket_send_grow(agent->worker_socket);
}
