/* SPDX-License-Identifier: Apache-2.0 */
/* A node: the command, its workers and its guard, and what can happen to them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/watch/stacks.h"
#include "agent/worker/worker_group_private.h"
#include "rendezvous/server/takeover.h"
#include "tests/sim/world.h"

enum {
    GRACE_MS = 400,
    HEARTBEATS = 4, /* of a lease */
    DRAIN_MS = 1000,
    LOOK_MS = 100, /* interval at which the guard looks at a socket */
};

/* ---- Workers ----------------------------------------------------------------------------- */

static struct world_node *node_of_group(const struct worker_group *group)
{
    return ct_list_entry(group->options.context, struct world_node, agent);
}

static void reap_workers(struct world_node *node)
{
    node->live_generation = node->live_instance = node->dies_us = 0;
    node->is_excepted = false;
}

/* The workers die within this time: after a signal that they obey in time or not, or by SIGKILL. */
void world_kill_workers(struct world_node *node, uint64_t within_ms)
{
    const uint64_t at_us = world.now_us + world_draw(within_ms * WORLD_MS + 1);

    if (!node->live_generation || (node->dies_us && node->dies_us <= at_us))
        return;
    node->dies_us = at_us;
    world_push((struct world_event){
        .at_us = at_us, .kind = EVENT_DEAD, .node = node->index, .number = at_us});
}

static void tell_gone(void *context)
{
    struct worker_group *group = context;

    struct world_node *node = node_of_group(group);

    if (node->live_generation)
        return;
    if (!node->is_stopping && atomic_load(&node->page.has_cut))
        group->options.on_fenced(group->options.context);
    if (!node->is_stopping)
        return;
    node->is_stopping = false;
    group->options.on_gone(group->options.context, 0);
}

void world_on_dead(struct world_node *node)
{
    if (!node->live_generation || !node->dies_us || node->dies_us > world.now_us)
        return;
    TRACE("node%d: workers of %llu are dead", node->index,
          (unsigned long long)node->live_generation);
    world_check_dead(node);
    reap_workers(node);
    if (node->is_up)
        world_call(node, 0, tell_gone, node->group);
}

int worker_group_create(struct worker_group **out,
                        const struct worker_group_options *options)
{
    struct worker_group *group = world_alloc(sizeof *group);

    group->options = *options;
    world.current->group = *out = group;
    world.current->is_stopping = false;
    return 0;
}

void worker_group_reset(struct worker_group *group, const struct ct_start *start)
{
    (void)group, (void)start;
}

void worker_group_start(struct worker_group *group, const struct ct_start *start)
{
    struct world_node *node = node_of_group(group);

    node->live_instance = node->agent.link->welcomed;
    node->live_generation = start->generation;
    node->live_deadline_ms = atomic_load(&node->page.until_ms);
    node->is_excepted = false;
    node->dies_us = 0;
    TRACE("node%d: workers of %llu start, instance %llx", node->index,
          (unsigned long long)start->generation,
          (unsigned long long)node->live_instance);
    world_check_start(node);
    if (world.survives)
        world_ranks_start(node);
    group->options.on_started(group->options.context);
}

void worker_group_stop(struct worker_group *group, int signal, uint64_t grace_ms,
                       bool is_gentle)
{
    struct world_node *node = node_of_group(group);

    (void)is_gentle; /* only the time is simulated */
    node->is_stopping = true;
    if (!node->live_generation) {
        tell_gone(group);
        return;
    }
    TRACE("node%d: workers are stopped within %llu ms", node->index,
          (unsigned long long)grace_ms);
    /* SIGKILL after the grace; the time that it takes belongs to K. */
    world_kill_workers(node, signal == SIGKILL || world_draw(4) == 0
                                 ? grace_ms + WORLD_DIE_MAX_MS
                                 : grace_ms);
}

/* Only the time is simulated: ranks that are freed may use all of the grace. */
void worker_group_stop_survivors(struct worker_group *group, int signal,
                                 uint64_t grace_ms,
                                 const struct worker_group_loss *loss)
{
    worker_group_stop(group, signal, loss->grace_ms + grace_ms, false);
}

void worker_group_move_store(struct worker_group *group, const struct ct_start *start)
{
    (void)group, (void)start;
}

void worker_group_reap(struct worker_group *group, pid_t earliest)
{
    (void)group, (void)earliest;
}

void worker_group_set_age(struct ct_failure *failure)
{
    failure->age_ms = 1;
}

const struct ct_failure *worker_group_find_raised(struct worker_group *group,
                                                  uint64_t until_ms)
{
    (void)group, (void)until_ms;
    return NULL;
}

int worker_group_get_failures(const struct worker_group *group, struct ct_failure *out,
                              int max, struct ct_more *more)
{
    (void)group, (void)out, (void)max, (void)more;
    return 0;
}

/* Workers of this simulation report no numbers and commit no checkpoints. */
bool worker_group_get_samples(const struct worker_group *group,
                              const struct ct_failure *failure, struct ct_samples *out)
{
    (void)group, (void)failure, (void)out;
    return false;
}

bool worker_group_take_metrics(struct worker_group *group, struct ct_metrics *out)
{
    (void)group, (void)out;
    return false;
}

void worker_group_renew_metrics(struct worker_group *group)
{
    (void)group;
}

bool hold_is_busy(const struct hold *hold)
{
    (void)hold;
    return false;
}

void hold_forget_lost(struct hold *hold)
{
    (void)hold;
}

int64_t worker_group_min_step(const struct worker_group *group)
{
    (void)group;
    return -1;
}

void worker_group_set_hello(struct worker_group *group, int rank, uint64_t generation)
{
    (void)group, (void)rank, (void)generation;
}

void worker_group_set_progress(struct worker_group *group, int rank,
                               uint64_t generation,
                               const struct worker_socket_progress *progress)
{
    (void)group, (void)rank, (void)generation, (void)progress;
}

void world_fail(struct world_node *node)
{
    struct ct_failure failure = {.generation = node->live_generation,
                                 .cause = CT_CAUSE_EXIT,
                                 .code = (int32_t)(1 + world_draw(100)),
                                 .step = (int64_t)world_draw(1000000)};

    if (!node->is_up || !node->live_generation || node->agent.state != AGENT_RUNNING ||
        world_is_stopped(node, PART_AGENT))
        return;
    world.current = node;
    node->group->options.on_failure(node->group->options.context, &failure);
    world_settle();
    world.current = NULL;
}

/* ---- The guard --------------------------------------------------------------------------- */

static void push_guard(struct world_node *node, uint64_t at_ms)
{
    world_push((struct world_event){.at_us = world_when_us(node, at_ms),
                                    .kind = EVENT_GUARD,
                                    .node = node->index,
                                    .life = node->life});
}

static bool is_server_alive(const struct world_node *node)
{
    const uint64_t patience_ms = atomic_load(&node->page.patience_ms);
    struct ct_tcp_view view;

    return patience_ms > 0 && node->fence_fd >= 0 &&
           world_look(node->fence_fd, &view) && view.is_open &&
           view.quiet_ms < patience_ms;
}

void world_on_guard(struct world_node *node)
{
    const uint64_t until_ms = atomic_load(&node->page.until_ms);
    const uint64_t now_ms = world_clock_ms(node);

    if (until_ms == 0)
        return;
    if (now_ms < until_ms) {
        push_guard(node, until_ms);
    } else if (is_server_alive(node)) {
        push_guard(node, now_ms + LOOK_MS);
    } else {
        TRACE("node%d: the guard kills", node->index);
        (void)fence_page_cut(&node->page, until_ms);
        world_kill_workers(node, WORLD_DIE_MAX_MS);
    }
}

void fence_arm(uint64_t until_ms, uint64_t patience_ms)
{
    struct world_node *node = world.current;

    if (world.mutant == MUTANT_PATIENT_AGENT)
        patience_ms = world.lease_ms / 5 * 2;
    fence_page_arm(&node->page, until_ms, patience_ms);
    push_guard(node, until_ms);
}

void fence_renew(uint64_t until_ms)
{
    struct world_node *node = world.current;

    fence_page_renew(&node->page, until_ms);
    if (atomic_load(&node->page.until_ms) > 0)
        node->live_deadline_ms = atomic_load(&node->page.until_ms);
}

void fence_set_socket(int fd)
{
    world.current->fence_fd = fd;
}

void fence_finish(void)
{
    fence_page_finish(&world.current->page);
}

void fence_disarm(void)
{
    fence_page_disarm(&world.current->page);
}

bool fence_has_cut(void)
{
    return atomic_load(&world.current->page.has_cut);
}

/* ---- The server of this node ------------------------------------------------------------- */

bool world_serves(const struct world_node *node)
{
    return node->is_up && node->dispatch != NULL;
}

const char *world_run_id(int run)
{
    return run == 0 ? "job" : "other";
}

/* leader_candidate.h calls these for one server: that of the node. */
static struct world_node *node_of(struct server *server)
{
    return (struct world_node *)(void *)server;
}

struct server *world_server(struct world_node *node)
{
    return (struct server *)(void *)node;
}

/* A mutant: the server waits half as long for workers as it must. */
static void halve_wait(struct run *run)
{
    if (!run)
        return;
    run->round->settings.lost_after_ms /= 2;
    run->round->fence_ms = ct_now_ms() + world.lease_ms / 2;
    member_for_each(member, &run->round->members) {
        member->received_ms -= world.lease_ms / 2;
        member->lease.renewed_ms -= world.lease_ms / 2;
    }
    run_arm_timer(run);
}

int server_lead(struct server *server, uint64_t term, const void *journal,
                size_t length, uint64_t served_ms, struct ctrun_error *err)
{
    struct world_node *node = node_of(server);
    int rc = takeover_begin(node->dispatch, term, journal, length, served_ms, err);

    if (world.mutant == MUTANT_HALF_WAIT)
        halve_wait(run_find(&node->dispatch->runs, "job"));
    return rc;
}

void server_step_down(struct server *server)
{
    dispatch_step_down(node_of(server)->dispatch);
}

static void release(void *context)
{
    struct world_node *node = context;

    if (world.mutant == MUTANT_ACK_BEFORE_RENEWAL)
        atomic_store(&node->dispatch->commit->renewed_ms, UINT64_MAX);
    output_commit_release(node->dispatch->commit);
}

void server_poke(struct server *server)
{
    world_call(node_of(server), 0, release, node_of(server));
}

void __wrap_output_commit_acknowledge(struct output_commit *commit, struct outbox *to,
                                      const struct ct_heartbeat *heartbeat);
void __real_output_commit_acknowledge(struct output_commit *commit, struct outbox *to,
                                      const struct ct_heartbeat *heartbeat);
void __wrap_output_commit_acknowledge(struct output_commit *commit, struct outbox *to,
                                      const struct ct_heartbeat *heartbeat)
{
    world_check_arrived(world.current, to->conn, heartbeat->sequence);
    __real_output_commit_acknowledge(commit, to, heartbeat);
}

static void open_server(struct world_node *node)
{
    static struct conn_pool pools[WORLD_NODES_MAX]; /* large; only the list is used */
    static struct dispatch dispatches[WORLD_NODES_MAX];
    struct dispatch *dispatch = node->dispatch = &dispatches[node->index];

    memset(dispatch, 0, offsetof(struct dispatch, plain));
    node->pool = &pools[node->index];
    ct_list_init(&node->pool->conns);
    dispatch->pool = node->pool;
    dispatch->only_run_id = world.has_daemon ? NULL : "job";
    dispatch->runs.is_in_ctrund = world.has_daemon;
    (void)snprintf(dispatch->host, sizeof dispatch->host, "node%d", node->index);
    if (node->candidate) {
        dispatch->commit = leader_candidate_output_commit(node->candidate);
        dispatch->runs.journal = leader_candidate_sink(node->candidate);
        dispatch->is_candidate = true;
    }
    dispatch_init(dispatch);
    if (node->has_mark && !world.has_daemon) /* as the launcher does (ctl_dir.h) */
        dispatch->runs.held_from_ms = ct_now_ms();
    node->has_mark = true;
}

static size_t find_servers(void *context, struct ct_addr *out, size_t max)
{
    const struct world_node *node = context;

    return leader_candidate_find_servers(node->candidate, out, max);
}

void world_stand(struct world_node *node)
{
    static const struct addresses addresses;
    struct ctrun_error err;

    if (leader_candidate_start(node->candidate, world_server(node), &addresses, 0,
                               &err) < 0)
        abort();
}

static void start_candidate(struct world_node *node)
{
    static struct config config;
    struct ctrun_error err;

    (void)snprintf(config.run.run_id, sizeof config.run.run_id, "job");
    config.rdzv.etcd.lease_ttl_s = world.ttl_s;
    config.rdzv.etcd.timeout_ms = 60000;
    if (leader_candidate_create(&node->candidate, &config, &err) < 0)
        abort();
    open_server(node);
    if (world.has_ha)
        world_ha_open(node);
    else
        world_stand(node);
}

/* ---- The command ------------------------------------------------------------------------- */

static void end_program(void *context)
{
    struct world_node *node = context;
    const int code = node->result.verdict.outcome ? node->result.verdict.exit_code
                                                  : CT_EXIT_RETRY;

    TRACE("node%d: ends with %d: %s", node->index, code, node->result.error.text);
    node->has_ended = true;
    node->has_mark = false;
    node->exit_code = code;
    node->ended_us = world.now_us;
    world_check_end(node);
    if (node->candidate)
        leader_candidate_stop(node->candidate);
    world_kill(node);
}

static void close_link(void *context)
{
    struct world_node *node = context;

    link_close(node->agent.link, 0);
    node->agent.link = NULL;
}

/* An agent with its verdict gives the others time to read theirs. */
void loop_stop(struct loop *loop)
{
    struct world_node *node = world.current;

    (void)loop;
    world_call(node, 0, close_link, node);
    world_call(node,
               node->dispatch && dispatch_has_verdicts_to_deliver(node->dispatch)
                   ? DRAIN_MS * WORLD_MS
                   : 0,
               end_program, node);
}

static void fill_options(struct world_node *node)
{
    static struct ct_addr founder = {.v4.sin_family = AF_INET,
                                     .length = sizeof(struct sockaddr_in)};
    struct agent_options *options = &node->options;

    founder.v4.sin_addr.s_addr = htonl(0x0a000001u);
    founder.v4.sin_port = htons(29500);
    *options = (struct agent_options){
        .server = &founder,
        .server_count = 1,
        .find_servers = world.has_etcd ? find_servers : NULL,
        .serves_rendezvous = node->dispatch && !world.has_etcd,
        .connect_timeout_ms = world.window_ms,
        .grace_ms = GRACE_MS,
        .context = node,
    };
    options->hello = (struct ct_hello){
        .min_nodes = world.min_nodes,
        .max_nodes = world.max_nodes,
        .max_restarts = 100000,
        .join_timeout_ms = 100 * world.lease_ms,
        .last_call_ms = world.last_call_ms,
        .heartbeat_ms = world.lease_ms / HEARTBEATS,
        .lost_after_ms = world.lease_ms,
    };
    (void)snprintf(options->hello.run_id, sizeof options->hello.run_id, "%s",
                   world_run_id(node->run));
    (void)snprintf(options->hello.host, sizeof options->hello.host, "node%d",
                   node->index);
    if (world.has_ha)
        world_ha_fill(options);
    options->join.slots = world.survives ? WORLD_RANKS : 1;
    options->survive_ms = options->join.survive_ms = world.survives ? WORLD_SURVIVE_MS
                                                                    : 0;
    options->join.replaces = world.replaces;
    options->join.store_port = 1024;
    options->join.node_rank_hint = -1;
    (void)snprintf(options->join.role, sizeof options->join.role, "default");
}

static void start_agent(void *context)
{
    struct world_node *node = context;
    struct agent *agent = &node->agent;
    struct ctrun_error err;

    memset(agent, 0, sizeof *agent);
    memset(&node->result, 0, offsetof(struct agent_result, verdict.failures));
    memset(&node->result.signal, 0,
           sizeof node->result - offsetof(struct agent_result, signal));
    agent->options = &node->options;
    agent->result = &node->result;
    agent->born_ms = ct_now_ms();
    if (agent_open_worker_group(agent, &err) < 0 ||
        agent_open_survival(agent, &err) < 0 || agent_open_link(agent, &err) < 0 ||
        (world.has_ha && agent_open_ha(agent, &err) < 0))
        abort();
    if (world.mutant == MUTANT_PATIENT_AGENT)
        agent->link->lease.is_replaceable = false;
    link_connect(agent->link, node->options.connect_timeout_ms);
}

static void start_program(struct world_node *node)
{
    TRACE("node%d: starts", node->index);
    node->is_up = true;
    node->has_ended = false;
    node->life++;
    node->own_instance = 0;
    node->has_slept = false;
    node->agent.link = NULL;
    node->agent.survival.timer = NULL;
    node->group = NULL;
    memset(&node->page, 0, sizeof node->page);
    node->fence_fd = -1;
    world.current = node;
    if (world.has_etcd)
        start_candidate(node);
    else if (node->index == 0)
        open_server(node);
    fill_options(node);
    world.current = NULL;
    if (world.has_daemon && node->index == 0)
        return; /* no agent */
    world_call(node, world_draw(20 * WORLD_MS), start_agent, node);
}

void world_resize(struct world_node *node, uint32_t min_nodes, uint32_t max_nodes)
{
    const struct ct_resize resize = {.min_nodes = min_nodes, .max_nodes = max_nodes};

    if (world.has_resized || !node->is_up || world_is_stopped(node, PART_AGENT) ||
        !node->agent.link || !link_is_up(node->agent.link))
        return;
    TRACE("node%d: resize %u:%u", node->index, min_nodes, max_nodes);
    world.has_resized = true;
    world.current = node;
    link_send(node->agent.link,
              &(struct ct_message){CT_MESSAGE_RESIZE, .resize = &resize});
    world_settle();
    world.current = NULL;
}

void world_boot(struct world_node *node)
{
    if (node->is_on && (node->is_up || node->live_generation))
        /* The command runs, or the guard has not ended the workers of the last one. */
        return;
    if (!node->is_on) {
        node->is_on = true;
        node->boots++;
        node->booted_us = world.now_us;
        node->asleep_us = 0;
        node->waiting_count = 0;
        memset(node->stopped_us, 0, sizeof node->stopped_us);
        memset(node->resumes_us, 0, sizeof node->resumes_us);
    }
    start_program(node);
}

/* Frees its memory; nothing is sent. */
static void free_program(struct world_node *node)
{
    struct world_node *before = world.current;

    world.is_muted = true;
    world.current = node;
    if (node->agent.link)
        link_close(node->agent.link, 0);
    node->agent.link = NULL;
    world_ranks_end(node);
    world_election_drop(node);
    if (node->dispatch) {
        dispatch_step_down(node->dispatch);
        world_settle();
        dispatch_close(node->dispatch);
        world_settle();
    }
    leader_candidate_destroy(node->candidate);
    node->dispatch = NULL;
    node->pool = NULL;
    node->candidate = NULL;
    world.current = before;
    world.is_muted = false;
}

static void end_life(struct world_node *node, bool is_power)
{
    if (!node->is_up)
        return;
    world_drop_conns(node, is_power);
    node->is_up = false;
    free_program(node);
}

void world_kill(struct world_node *node)
{
    if (!node->is_on || !node->is_up)
        return;
    TRACE("node%d: is killed", node->index);
    end_life(node, false);
    fence_page_disarm(&node->page);
    world_kill_workers(node, WORLD_DIE_MAX_MS);
}

void world_power_off(struct world_node *node)
{
    if (!node->is_on)
        return;
    TRACE("node%d: loses power", node->index);
    end_life(node, true);
    if (node->live_generation)
        reap_workers(node);
    node->is_on = node->has_mark = false;
    node->waiting_count = 0;
}

/* ---- What the agent has besides ---------------------------------------------------------- */

void reachability_cancel(struct reachability *way)
{
    (void)way;
}

void agent_find_reachability(struct agent *agent)
{
    agent_start_workers(agent);
}

int agent_open_reachability(struct agent *agent, struct ctrun_error *err)
{
    (void)agent, (void)err;
    return 0;
}

void agent_send_reachability(struct agent *agent)
{
    (void)agent;
}

void agent_on_reachability(struct agent *agent, const struct ct_reachability *told)
{
    (void)agent, (void)told;
}

void dstate_watch_start(struct dstate_watch *stuck)
{
    (void)stuck;
}

void dstate_watch_stop(struct dstate_watch *stuck)
{
    (void)stuck;
}

void file_timer_clear(struct file_timer *file_timer)
{
    (void)file_timer;
}

void agent_bill_stop(struct agent *agent, bool is_end)
{
    (void)agent, (void)is_end;
}

void agent_bill_end_phase(struct agent *agent, enum bill_phase phase)
{
    (void)agent, (void)phase;
}

void agent_recovery_lose(struct agent *agent, const struct ct_failure *failure)
{
    (void)agent, (void)failure;
}

void agent_recovery_decide(struct agent *agent)
{
    (void)agent;
}

void agent_recovery_join(struct agent *agent)
{
    (void)agent;
}

void agent_recovery_stop(struct agent *agent)
{
    (void)agent;
}

void agent_bill_look(struct agent *agent)
{
    (void)agent;
}

int64_t agent_last_step(const struct agent *agent)
{
    (void)agent;
    return -1;
}

const struct recorder_folder *agent_recorder(const struct agent *agent)
{
    (void)agent;
    return NULL;
}

void agent_start_hang(struct agent *agent)
{
    (void)agent;
}

void stacks_cancel(struct stacks *stacks)
{
    (void)stacks;
}

void agent_start_own(struct agent *agent)
{
    (void)agent;
}

void agent_stop_own(struct agent *agent)
{
    (void)agent;
}

bool agent_saves_stacks(struct agent *agent, const struct ct_stop *stop)
{
    (void)agent, (void)stop;
    return false;
}

bool agent_send_worse(struct agent *agent, const struct ct_stop *stop)
{
    (void)agent, (void)stop;
    return false;
}

void agent_save_calls(struct agent *agent)
{
    (void)agent;
}

void agent_add_calls(const struct agent *agent, struct ct_failure *failure)
{
    (void)agent, (void)failure;
}

void agent_look_after_timeout(struct agent *agent, const struct ct_failure *failure,
                              struct ct_failure *own)
{
    (void)agent, (void)failure, (void)own;
}

void agent_flush_dedup(struct agent *agent, bool is_end)
{
    (void)agent, (void)is_end;
}

void agent_on_signal(struct agent *agent, const struct ct_signal *message)
{
    (void)agent, (void)message;
}

void agent_drained(void *context)
{
    (void)context;
}

void agent_on_resize(struct agent *agent, const struct ct_resize *message)
{
    (void)agent, (void)message;
}

void agent_on_drain(struct agent *agent, const struct ct_drain *message)
{
    (void)agent, (void)message;
}

void agent_on_stacks(struct agent *agent, const struct ct_stacks *message)
{
    (void)agent, (void)message;
}

void agent_on_restart(struct agent *agent, const struct ct_restart *message)
{
    (void)agent, (void)message;
}

void agent_note_samples(const struct ct_stop *stop)
{
    (void)stop;
}

void agent_on_chaos(struct agent *agent, const struct ct_chaos *message)
{
    (void)agent, (void)message;
}

void agent_on_reload(struct agent *agent, const struct ct_reload *message)
{
    (void)agent, (void)message;
}

void agent_send_reload(struct agent *agent)
{
    (void)agent;
}

void agent_note_restart(const struct ct_stop *stop)
{
    (void)stop;
}

int worker_socket_ask_to_stop(struct worker_socket *control, const char *why)
{
    (void)control, (void)why;
    return 0;
}

void worker_socket_begin_round(struct worker_socket *control, int workers)
{
    (void)control, (void)workers;
}

const char *worker_socket_name(const struct worker_socket *control)
{
    (void)control;
    return "";
}

int worker_socket_open(struct worker_socket **out,
                       const struct worker_socket_options *options,
                       struct ctrun_error *err)
{
    (void)out, (void)options, (void)err;
    return 0;
}

void worker_socket_refresh(struct worker_socket *control)
{
    (void)control;
}

bool worker_socket_is_used(const struct worker_socket *control)
{
    (void)control;
    return false;
}

void worker_socket_send_loss(struct worker_socket *control, const char *text)
{
    (void)control, (void)text;
}

/* What a proof covers. No node has a token here. */
int __wrap_ct_auth_hash_opening(uint8_t out[CT_PROOF_BYTES],
                                const struct ct_resume *resume,
                                const struct ct_hello *hello)
{
    (void)resume, (void)hello;
    memset(out, 0, CT_PROOF_BYTES);
    return 0;
}

pid_t unkillable_find(void)
{
    return 0;
}

void unkillable_describe(char *dst, pid_t pid)
{
    (void)pid;
    dst[0] = '\0';
}

void unkillable_describe_stuck(char *dst, pid_t pid)
{
    unkillable_describe(dst, pid);
}
