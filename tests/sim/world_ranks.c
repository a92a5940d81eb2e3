/* SPDX-License-Identifier: Apache-2.0 */
/* --survive: ranks that are lost, ranks that replace them, and those of all nodes, which ask who
 * continues. The agent's side is real code (worker_group_lost.c, agent_survive.c, agent_world.c);
 * the behaviour of the workers is here. */
#include <string.h>
#include <unistd.h>

#include "agent/worker/worker_group_private.h"
#include "tests/sim/world.h"

enum {
    SIGHT_MS = 1500,  /* until a rank notices that a rank of its world is gone */
    ASKS_MS = 200,    /* from the message of a loss to the question */
    REMAINS_MS = 500, /* until processes that a lost rank left behind are gone */
    HEARS_MS = 30,    /* until a message from its agent reaches a worker */
    IMPORTS_MS = 900, /* from the start of a new rank until it asks */
};

/* A rank to which something happens later. */
struct moment {
    struct world_node *node;
    int local_rank;
    uint64_t generation;
    struct ct_worker_world world; /* that it receives */
    uint32_t losses;              /* that it receives */
    uint64_t sees;                /* the rank that it finds lost, as a bit; 0: none */
    /* The last epoch of that rank; later epochs have another rank in its place. */
    uint32_t seen_epoch;
    uint32_t grows_behind; /* 1 + the epoch after which a new rank waits; 0: none */
};

static struct moment *make_moment(struct world_node *node, int local_rank)
{
    struct moment *moment = world_alloc(sizeof *moment);

    *moment = (struct moment){
        .node = node, .local_rank = local_rank, .generation = node->live_generation};
    return moment;
}

/* The rank still lives. */
static bool is_there(const struct moment *moment)
{
    const struct world_node *node = moment->node;

    return node->live_generation && node->live_generation == moment->generation &&
           node->group->workers &&
           node->group->workers[moment->local_rank].state == WORKER_RUNNING;
}

static void on_ask(void *context)
{
    struct moment *moment = context;
    struct world_node *node = moment->node;
    struct world_rank *rank = &node->ranks[moment->local_rank];
    struct worker *worker = &node->group->workers[moment->local_rank];

    if (!is_there(moment) || !rank->works || node->agent.state != AGENT_RUNNING ||
        (rank->losses >= moment->losses && !(rank->ranks & moment->sees) &&
         rank->epoch + 1 != moment->grows_behind) ||
        (moment->sees && rank->epoch > moment->seen_epoch))
        return; /* it continues without that rank already */
    TRACE("node%d: rank %d asks, epoch %u", node->index, worker->rank, rank->epoch);
    rank->works = false;
    (void)agent_on_ask(&node->agent, worker->rank, moment->generation, getpid());
}

static void ask_within(struct moment *moment, uint64_t most_ms)
{
    world_call(moment->node, world_draw(most_ms * WORLD_MS + 1), on_ask, moment);
}

void worker_socket_send_rank_loss(struct worker_socket *control, uint32_t losses,
                                  const char *text)
{
    struct world_node *node = world.current;

    (void)control, (void)text;
    for (int i = 0; i < WORLD_RANKS && node->live_generation; i++) {
        struct moment *moment = make_moment(node, i);

        moment->losses = losses;
        ask_within(moment, ASKS_MS);
    }
}

static void tell_grow(struct world_node *node, int local_rank)
{
    struct moment *moment = make_moment(node, local_rank);

    moment->grows_behind = node->grows_behind;
    ask_within(moment, ASKS_MS);
}

void worker_socket_send_grow(struct worker_socket *control)
{
    struct world_node *node = world.current;

    (void)control;
    node->grows_behind = node->agent.survival.epoch + 1;
    for (int i = 0; i < WORLD_RANKS && node->live_generation; i++)
        tell_grow(node, i);
}

/* A new rank works with no other rank before this question. */
static void on_new_asks(void *context)
{
    struct moment *moment = context;
    struct world_node *node = moment->node;
    struct worker *worker = &node->group->workers[moment->local_rank];

    if (!is_there(moment) || !worker->is_new || node->agent.state != AGENT_RUNNING)
        return;
    TRACE("node%d: rank %d is new, and asks", node->index, worker->rank);
    (void)agent_on_ask(&node->agent, worker->rank, moment->generation, getpid());
}

static void start_new(struct world_node *node, int local_rank)
{
    node->ranks[local_rank] = (struct world_rank){.is_new = true};
    world_call(node, world_draw(IMPORTS_MS * WORLD_MS), on_new_asks,
               make_moment(node, local_rank));
}

static void on_replace(void *context)
{
    struct moment *moment = context;
    struct world_node *node = moment->node;
    struct worker *worker = &node->group->workers[moment->local_rank];

    if (node->live_generation != moment->generation || !worker->is_survived ||
        worker->state != WORKER_ENDED || node->agent.state != AGENT_RUNNING)
        return;
    *worker = (struct worker){.state = WORKER_RUNNING,
                              .pid = getsid(0),
                              .local_rank = moment->local_rank,
                              .rank = worker->rank,
                              .is_new = true};
    start_new(node, moment->local_rank);
}

/* Replaces most of the ranks that the others continue without, or that were new. */
static void replace_lost(struct world_node *node)
{
    for (int i = 0; i < WORLD_RANKS && world.replaces; i++)
        if (node->group->workers[i].is_survived && world_draw(4) > 0)
            world_call(node, 0, on_replace, make_moment(node, i));
}

static void on_world(void *context)
{
    struct moment *moment = context;
    struct world_node *node = moment->node;
    struct world_rank *rank = &node->ranks[moment->local_rank];
    uint64_t ranks; /* fewer than 64 */

    if (!is_there(moment) || moment->world.epoch <= rank->epoch)
        return;
    memcpy(&ranks, moment->world.ranks, sizeof ranks);
    if (rank->is_new && !(ranks >> node->group->workers[moment->local_rank].rank & 1))
        return; /* it is not in this world */
    world.grows += rank->is_new;
    rank->is_new = false;
    rank->epoch = moment->world.epoch;
    rank->losses = moment->world.losses;
    rank->ranks = ranks;
    rank->works = ranks >> node->group->workers[moment->local_rank].rank & 1;
    TRACE("node%d: rank %d goes on with %llx, epoch %u", node->index,
          node->group->workers[moment->local_rank].rank, (unsigned long long)ranks,
          rank->epoch);
    world_check_rank(node, moment->local_rank);
    if (node->grows_behind == rank->epoch + 1) /* a GROW arrived before this world */
        tell_grow(node, moment->local_rank);
}

void worker_socket_send_world(struct worker_socket *control,
                              const struct ct_worker_world *told)
{
    struct world_node *node = world.current;

    (void)control;
    world.shrinks++;
    for (int i = 0; i < WORLD_RANKS; i++) {
        struct moment *moment = make_moment(node, i);

        moment->world = *told;
        if (!node->ranks[i].works)
            world_call(node, world_draw(HEARS_MS * WORLD_MS), on_world, moment);
    }
    replace_lost(node);
}

/* Ranks notice a loss by themselves here. */
void worker_group_cut(struct worker_group *group, const struct worker_group_loss *loss)
{
    (void)group, (void)loss;
}

int worker_pass_signal(struct worker *worker, int signal)
{
    (void)worker, (void)signal;
    return 0; /* only for --survive=torch, which is not simulated */
}

bool worker_socket_was_used(const struct worker_socket *control)
{
    (void)control;
    return world.survives;
}

int worker_group_count(const struct worker_group *group)
{
    return group->count;
}

const struct worker *worker_group_worker(const struct worker_group *group,
                                         int local_rank)
{
    return &group->workers[local_rank];
}

/* No node loses its last rank here, so there is nothing to do. */
static void on_look(void *context)
{
    (void)context;
}

void world_ranks_start(struct world_node *node)
{
    struct worker_group *group = node->group;
    const struct ct_start *start = &node->agent.start;

    if (!group->workers) {
        group->workers = world_alloc(WORLD_RANKS * sizeof *group->workers);
        group->restart_timer = loop_timer_open(node->agent.loop, on_look, node);
    }
    group->count = WORLD_RANKS;
    for (int i = 0; i < WORLD_RANKS; i++) {
        group->workers[i] = (struct worker){.state = WORKER_RUNNING,
                                            .pid = getsid(0),
                                            .local_rank = i,
                                            .rank = (int)start->rank_base + i,
                                            .is_new = start->is_new};
        node->ranks[i] = (struct world_rank){
            .works = true, .ranks = ((uint64_t)1 << start->world_size) - 1};
        if (start->is_new)
            start_new(node, i);
    }
    node->grows_behind = 0;
    if (!start->is_new)
        world_check_rank(node, 0);
}

void world_ranks_end(struct world_node *node)
{
    if (node->group)
        loop_timer_close(node->group->restart_timer);
    if (node->group)
        node->group->restart_timer = NULL;
    loop_timer_close(node->agent.survival.timer);
    node->agent.survival.timer = NULL;
}

static void on_gone(void *context)
{
    struct moment *moment = context;
    struct world_node *node = moment->node;
    struct worker *worker = &node->group->workers[moment->local_rank];

    if (node->live_generation != moment->generation ||
        worker->state != WORKER_RESTARTING)
        return;
    worker->state = WORKER_ENDED;
    node->ranks[moment->local_rank].works = false;
    if (node->agent.state == AGENT_RUNNING)
        agent_on_fewer(&node->agent);
    replace_lost(node);
}

/* All ranks that work with the lost one notice its loss within SIGHT_MS, even without a message. */
static void show(const struct world_node *lost, int rank, uint32_t epoch)
{
    for (int i = 0; i < world.node_count; i++) {
        struct world_node *node = &world.nodes[i];

        for (int k = 0; k < WORLD_RANKS; k++) {
            struct moment *moment = make_moment(node, k);

            moment->sees = (uint64_t)1 << rank;
            moment->seen_epoch = epoch;
            if (node->is_up && node->live_generation == lost->live_generation)
                ask_within(moment, SIGHT_MS);
        }
    }
}

static int draw_rank(const struct world_node *node)
{
    const struct worker_group *group = node->group;
    int running = 0, found = -1;

    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING &&
            world_draw((uint64_t)++running) == 0)
            found = i;
    return running > 1 ? found : -1;
}

void world_lose(struct world_node *node)
{
    struct worker *worker;
    int local_rank;

    if (!node->is_up || !node->live_generation || node->dies_us ||
        node->agent.state != AGENT_RUNNING || world_is_stopped(node, PART_AGENT) ||
        (local_rank = draw_rank(node)) < 0)
        return;
    worker = &node->group->workers[local_rank];
    worker->failure = (struct ct_failure){.generation = node->live_generation,
                                          .cause = CT_CAUSE_SIGNAL,
                                          .code = 9,
                                          .rank = worker->rank,
                                          .happened_ms = ct_now_ms()};
    TRACE("node%d: rank %d is lost", node->index, worker->rank);
    show(node, worker->rank, node->ranks[local_rank].epoch);
    world.current = node;
    if (agent_survives(&node->agent, &worker->failure)) {
        worker->is_lost = true;
        worker->is_survived = worker->is_new;
        worker->state = WORKER_RESTARTING;
        world_call(node, world_draw(REMAINS_MS * WORLD_MS), on_gone,
                   make_moment(node, local_rank));
    } else {
        node->group->options.on_failure(node->group->options.context, &worker->failure);
    }
    world_settle();
    world.current = NULL;
}

int world_count_ranks(void)
{
    int count = 0;

    for (int i = 0; i < world.node_count; i++)
        for (int k = 0; k < WORLD_RANKS; k++)
            count += world.nodes[i].live_generation && world.nodes[i].ranks[k].works;
    return count;
}

/* ---- Mutants ----------------------------------------------------------------------------- */

int __wrap_worker_group_list_still(struct worker_group *group, uint8_t *ranks,
                                   size_t bytes);
int __real_worker_group_list_still(struct worker_group *group, uint8_t *ranks,
                                   size_t bytes);
int __wrap_worker_group_list_still(struct worker_group *group, uint8_t *ranks,
                                   size_t bytes)
{
    struct worker before[WORLD_RANKS];
    int rc;

    if (world.mutant != MUTANT_STILL_AT_ONCE && world.mutant != MUTANT_REMAINS_IGNORED)
        return __real_worker_group_list_still(group, ranks, bytes);
    memcpy(before, group->workers, sizeof before);
    for (int i = 0; i < group->count; i++)
        if (world.mutant == MUTANT_STILL_AT_ONCE)
            group->workers[i].asks = true;
        else if (group->workers[i].state == WORKER_RESTARTING)
            group->workers[i].state = WORKER_ENDED;
    rc = __real_worker_group_list_still(group, ranks, bytes);
    memcpy(group->workers, before, sizeof before);
    return rc;
}

void __wrap_round_on_still(struct round *round, struct member *member,
                           const struct ct_message *message, uint64_t now_ms);
void __real_round_on_still(struct round *round, struct member *member,
                           const struct ct_message *message, uint64_t now_ms);
void __wrap_round_on_still(struct round *round, struct member *member,
                           const struct ct_message *message, uint64_t now_ms)
{
    struct ct_still still = *message->still;

    if (world.mutant == MUTANT_STILL_OF_ANY_EPOCH)
        still.epoch = round->world.epoch;
    __real_round_on_still(
        round, member, &(struct ct_message){CT_MESSAGE_STILL, .still = &still}, now_ms);
}

void __wrap_round_survive(struct round *round, struct member *member,
                          const struct ct_failure *loss, uint64_t now_ms);
void __real_round_survive(struct round *round, struct member *member,
                          const struct ct_failure *loss, uint64_t now_ms);
void __wrap_round_survive(struct round *round, struct member *member,
                          const struct ct_failure *loss, uint64_t now_ms)
{
    __real_round_survive(round, member, loss, now_ms);
    if (world.mutant == MUTANT_LOST_NODE_NOT_OUTLIVED)
        round->ranks_fence_ms = 0;
}
