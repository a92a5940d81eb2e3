/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/launch.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "agent/agent.h"
#include "launcher/addresses.h"
#include "launcher/candidacy.h"
#include "launcher/describe.h"
#include "launcher/fingerprint.h"
#include "launcher/hosts.h"
#include "launcher/json.h"
#include "launcher/logdir_aside.h"
#include "launcher/messages.h"
#include "launcher/nested.h"
#include "launcher/plan.h"
#include "launcher/program_hash.h"
#include "launcher/preflight.h"
#include "launcher/route.h"
#include "launcher/seat.h"
#include "launcher/sender.h"
#include "launcher/say_signal.h"
#include "launcher/say_start.h"
#include "launcher/summary.h"
#include "launcher/summary_json.h"
#include "launcher/torch_events.h"
#include "launcher/why.h"
#include "rendezvous/port_owner.h"
#include "rendezvous/server.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    SAY_EVERY_MS = 10000
};

struct launch {
    const struct config *config;
    struct hosts hosts;
    struct addresses addresses;
    struct route route; /* of this round */
    char said_route[CT_ADDR_TEXT_MAX];
    bool has_said_own;
    struct server *server;       /* NULL until something has to be listened for */
    struct candidacy *candidacy; /* backend etcd; else NULL */
    struct logdir_aside logdir;
    struct torch_events torch_events;
    struct ct_waiting waiting; /* the last one, for the summary */
    uint64_t waited_ms;
    uint64_t said_ms;
    uint64_t born_ms;
    bool has_said_omp;
    char said_layout[CT_LAYOUT_MAX];
    bool is_ending;        /* a signal has ended the run here */
    struct why why;        /* the first cause of the last stop */
    bool hosts_rendezvous; /* in this process */
    bool has_returned;     /* the rendezvous was lost: tell the new place */
};

/* ---- The embedded server ------------------------------------------------------------- */

/* A thread with a loop, made when the first listener is needed. */
static int need_server(struct launch *launch, struct ctrun_error *err)
{
    const struct server_options options = {
        .run_id = launch->config->run_id,
        .endpoint_is_store = launch->config->backend == CONFIG_STATIC,
        .token = &launch->config->token,
        .uses_munge = launch->config->uses_munge,
        .wants_seal = launch->config->wants_seal,
        .ports = launch->config->ports,
        .store_addr = launch->addresses.has_bind ? &launch->addresses.bind : NULL,
        .guards_stores = launch->config->guards_stores,
        .gate = launch->candidacy ? candidacy_gate(launch->candidacy) : NULL,
        .journal = launch->candidacy ? candidacy_sink(launch->candidacy) : NULL,
    };
    int rc;

    if (launch->server)
        return 0;
    if ((rc = server_create(&launch->server, &options, err)) < 0)
        return rc;
    if ((rc = server_start(launch->server, err)) < 0) {
        server_destroy(launch->server);
        launch->server = NULL;
    }
    return rc;
}

/* Serves as soon as it is elected. */
static int stand_for_host(struct launch *launch, struct ctrun_error *err)
{
    struct ct_addr any = {.v6.sin6_family = AF_INET6, .length = sizeof any.v6};
    uint16_t port;
    int rc;

    if ((rc = candidacy_create(&launch->candidacy, launch->config, err)) < 0 ||
        (rc = need_server(launch, err)) < 0)
        return rc;
    if (launch->addresses.has_bind)
        any = launch->addresses.bind;
    if ((rc = server_listen(launch->server, &any, &port, err)) < 0)
        return rc;
    return candidacy_start(launch->candidacy, launch->server, &launch->addresses, port,
                           err);
}

static size_t find_servers(void *context, struct ct_addr *out, size_t max)
{
    const struct launch *launch = context;

    return candidacy_find_servers(launch->candidacy, out, max);
}

/* Serves, or finds out that somebody of ours does. 0, CTRUN_E_PORT_BUSY and what was
 * printed. */
static int host_rendezvous(struct launch *launch, struct ctrun_error *err)
{
    enum hosts_role role = hosts_role(&launch->hosts, launch->config);
    struct ct_addr addr;
    uint16_t port;
    int rc;

    if (launch->config->backend == CONFIG_ETCD)
        return stand_for_host(launch, err);
    if (role == HOSTS_CLIENT)
        return 0;
    if ((rc = need_server(launch, err)) < 0)
        return rc;
    addr = addresses_choose_bind(&launch->hosts, launch->config);
    rc = server_listen(launch->server, &addr, &port, err);
    if (rc == 0) {
        ct_info("serving the rendezvous run=%s port=%d", launch->config->run_id, port);
        hosts_set_port(&launch->hosts, port);
        launch->hosts_rendezvous = true;
        return 0;
    }
    if (rc == CTRUN_E_PORT_BUSY && role == HOSTS_SERVE_OR_JOIN &&
        hosts_find_ctrun(&launch->hosts)) {
        ct_info("the rendezvous is served by another ctrun on this machine");
        return 0;
    }
    return rc;
}

static int open_store(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err)
{
    struct launch *launch = context;
    int rc;

    if (launch->config->backend ==
        CONFIG_STATIC) { /* the endpoint itself: see server.h */
        *port = (uint16_t)ct_addr_port(&launch->hosts.addrs[0]);
        *store = 0;
        return 0;
    }
    if ((rc = need_server(launch, err)) < 0)
        return rc;
    return server_open_store(launch->server, port, store, err);
}

static void close_store(void *context, uint64_t store)
{
    struct launch *launch = context;

    if (launch->config->backend != CONFIG_STATIC)
        server_close_store(launch->server, store);
}

static void on_members(void *context, uint64_t store, const struct ct_members *members)
{
    struct launch *launch = context;

    if (launch->config->backend != CONFIG_STATIC && launch->server)
        server_admit(launch->server, store, members);
}

/* ---- What the agent asks ------------------------------------------------------------- */

/* Beside what follows; plan() waits for what it needs. */
static void make_folders(struct launch *launch, uint64_t generation,
                         uint32_t restart_count)
{
    const struct config *config = launch->config;
    const struct logdir_request request = {
        .base = config->log_dir,
        .tmpdir = option_env(config->env, "TMPDIR"),
        .run_id = config->run_id,
        .generation = generation,
        .restart_count = restart_count,
        .first = config->task.local_id,
        .count = config->nproc,
    };

    if (!config->has_no_files)
        logdir_aside_begin(&launch->logdir, &request);
}

static int plan(void *context, const struct ct_start *start, int local_rank,
                struct agent_worker_plan *out, struct ctrun_error *err)
{
    struct launch *launch = context;
    const struct config *config = launch->config;
    int rc;

    make_folders(launch, start->generation, start->restart_count);
    if (!config->has_no_files &&
        (rc = logdir_aside_wait(&launch->logdir, config->task.local_id + local_rank,
                                err)) < 0)
        return rc;
    if ((rc = plan_worker(out, config, &launch->logdir.dir, start, local_rank, err)) <
        0)
        return rc;
    return route_set_env(&out->env, &launch->route) < 0
               ? ct_fail(err, -ENOMEM, "worker %d: out of memory", local_rank)
               : 0;
}

static void describe(void *context, struct ct_failure *failure)
{
    const struct launch *launch = context;

    failure->local_rank += launch->config->task.local_id;
    describe_failure(failure);
}

static char *ranks_prefix(void *context, const char *local_ranks, const char *ranks,
                          bool is_teed)
{
    const struct launch *launch = context;

    return plan_ranks_prefix(launch->config, local_ranks, ranks, is_teed);
}

static int parse_timer(void *context, const char *line, size_t length,
                       struct agent_timer *out)
{
    (void)context;
    return json_timer_read(line, length, out);
}

/* ---- What people hear ---------------------------------------------------------------- */

static void on_connecting(void *context, const char *why, uint64_t waited_ms)
{
    struct launch *launch = context;
    char own[256];

    if (launch->candidacy) {
        messages_say("waiting %llu s: no node is the host of run '%s' that can be "
                     "reached: %s",
                     (unsigned long long)(waited_ms / 1000), launch->config->run_id,
                     why);
        return;
    }
    messages_say("waiting %llu s: no rendezvous at %s port %d: %s",
                 (unsigned long long)(waited_ms / 1000), launch->config->endpoint.host,
                 launch->config->endpoint.port, why);
    if (launch->has_said_own || launch->hosts.is_mine)
        return;
    launch->has_said_own = true;
    hosts_format_own(own, sizeof own);
    messages_say("this node, %s, does not own that address; it has %s",
                 launch->config->host, own);
}

static void on_break(void *context, const char *why, uint64_t left_ms)
{
    (void)context;
    messages_say("%s; the workers go on, and it has %.1f s to come back", why,
                 (double)left_ms / 1000);
}

static void on_back(void *context)
{
    (void)context;
    messages_say("the rendezvous is back: nothing was lost");
}

static void on_waiting(void *context, const struct ct_waiting *waiting,
                       uint64_t waited_ms)
{
    struct launch *launch = context;
    char text[CT_MISSING_MAX + 128];

    launch->waiting = *waiting;
    launch->waited_ms = waited_ms;
    if (waited_ms < launch->said_ms) /* a new round waits from zero */
        launch->said_ms = 0;
    if (!waiting->is_standby && waited_ms - launch->said_ms < SAY_EVERY_MS)
        return;
    launch->said_ms = waited_ms;
    messages_format_waiting(text, sizeof text, waiting, waited_ms);
    messages_say("%s", text);
    if (waiting->joined < waiting->min_nodes &&
        hosts_format_loopback_hint(text, sizeof text, &launch->hosts, launch->config) >
            0)
        messages_say("warning[E_LOOPBACK]: %s", text);
}

/* Once, unless it changes. */
static void on_way(void *context, const struct ct_start *start,
                   const struct ct_addr *local)
{
    struct launch *launch = context;
    char text[256];

    (void)start;
    route_learn(&launch->route, local);
    if (!route_format(text, sizeof text, &launch->route, launch->config) ||
        strcmp(launch->said_route, launch->route.addr) == 0)
        return;
    (void)ct_copy(launch->said_route, sizeof launch->said_route, launch->route.addr);
    messages_say("%s", text);
}

/* Once, and on one node: the others chose in the same way. */
static void say_omp(struct launch *launch, const struct ct_start *start)
{
    const struct placement *placement = &launch->config->placement;
    char text[256];

    if (!placement->says_omp || launch->has_said_omp)
        return;
    launch->has_said_omp = true;
    (void)ct_format(text, sizeof text,
                    "OMP_NUM_THREADS=%d: %d core%s for %d workers; set it, or pass "
                    "--omp-threads=N",
                    placement->omp_threads, placement->cores,
                    placement->cores == 1 ? "" : "s",
                    launch->config->task.is_rank ? launch->config->task.local_count
                                                 : launch->config->nproc);
    if (start->group_rank == 0)
        messages_say("%s", text);
    else
        ct_info("%s", text);
}

static void on_start(void *context, const struct ct_start *start)
{
    struct launch *launch = context;
    unsigned last = (unsigned)launch->config->nproc - 1;

    say_start(launch->config, start, launch->said_layout);
    say_omp(launch, start);
    if (launch->has_returned)
        messages_say("rejoined as node %u of %u", start->group_rank,
                     start->group_world_size);
    launch->has_returned = false;
    ct_info(
        "round started restart_count=%u master_addr=%s master_port=%d group_rank=%u "
        "group_world_size=%u local_ranks=0-%u role_ranks=%u-%u global_ranks=%u-%u "
        "role_world_size=%u global_world_size=%u",
        start->restart_count, start->master_addr, start->master_port, start->group_rank,
        start->group_world_size, last, start->role_rank_base,
        start->role_rank_base + last, start->rank_base, start->rank_base + last,
        start->role_world_size, start->world_size);
    torch_events_round(&launch->torch_events, start);
    seat_tell_started();
}

/* A line that the server has added to the cause, for everybody. */
static void say_excluded(const struct ct_stop *stop)
{
    static const char label[] = "excluded\t";
    const char *found = strstr(stop->cause.facts, label);

    if (!found)
        return;
    found += sizeof label - 1;
    messages_say("%.*s", (int)strcspn(found, "\n"), found);
}

static void on_stop(void *context, const struct ct_stop *stop)
{
    struct launch *launch = context;
    char text[1024];

    why_take(&launch->why, stop);
    torch_events_round_over(&launch->torch_events);
    messages_format_stop(text, sizeof text, stop);
    if (!stop->is_final && stop->reason != CT_STOP_UNDECIDED)
        messages_say("%s", text);
    else
        ct_info("%s", text); /* a second STOP or the summary says it better */
    say_excluded(stop);
}

/* With --hosts it is said where the signal came from, not here. */
static void on_signal(void *context, int signal, pid_t sender, bool is_ending,
                      int interrupts)
{
    struct launch *launch = context;
    char text[SENDER_TEXT_MAX];

    if (is_ending)
        sender_describe(text, signal, sender, interrupts);
    else
        sender_describe_passed(text, signal, sender);
    if (!seat_get()->is_given)
        say_signal(launch->config, text, signal, sender,
                   is_ending && !launch->is_ending);
    launch->is_ending |= is_ending;
}

static void why(void *context, char *dst, size_t size)
{
    const struct launch *launch = context;
    struct messages_block block;

    why_format(&block, &launch->why, launch->config->program.name,
               launch->config->run_id);
    (void)ct_copy(dst, size, block.text);
}

static void on_countdown(void *context, uint64_t left_ms)
{
    if (!seat_get()->is_given)
        say_signal_left(((struct launch *)context)->config, left_ms);
}

static void on_resize(void *context, const struct ct_resize *resize)
{
    (void)context;
    messages_say("the run may have %u to %u nodes now (asked on %s)", resize->min_nodes,
                 resize->max_nodes, resize->by);
}

static void on_lost(void *context, const struct ctrun_error *why,
                    uint64_t looked_for_ms)
{
    (void)context;
    messages_say("lost the rendezvous: %s; workers stopped, looking for it for %llu s",
                 why->text, (unsigned long long)looked_for_ms / 1000);
}

static void on_returned(void *context)
{
    struct launch *launch = context;

    launch->has_returned = true;
    messages_say("the rendezvous is back: rejoining");
}

static void on_worker_started(void *context, int local_rank, int pid)
{
    struct launch *launch = context;

    torch_events_worker_started(&launch->torch_events, local_rank, pid);
}

static void on_worker_ended(void *context, const struct ct_failure *end)
{
    struct launch *launch = context;

    torch_events_worker_ended(&launch->torch_events, end);
}

/* ---- The end ------------------------------------------------------------------------- */

static int launcher_code(const struct config *config, int code)
{
    return code && config->torchrun_exit_code ? CT_EXIT_FAILURE : code;
}

static const char *own_error_file(const struct config *config)
{
    const char *path = option_env(config->env, CT_ENV_ERROR_FILE);

    return path && *path ? path : NULL;
}

static void write_own_error(const struct config *config, const char *message)
{
    const char *path = own_error_file(config);
    struct ctrun_error err;

    if (path && json_error_file_write(path, message, &err) < 0)
        messages_error(&err);
}

int launch_fail(const struct config *config, const struct ctrun_error *err)
{
    messages_error(err);
    write_own_error(config, err->text);
    return launcher_code(config, messages_exit_code(err->code));
}

/* The server has said what the others have. */
static int fail_unlike(const struct config *config, const struct ctrun_error *err)
{
    char ours[FINGERPRINT_TEXT_MAX];
    struct ctrun_error both;

    fingerprint_format(ours, sizeof ours, config);
    (void)ct_fail(&both, err->code, "%s; this node has %s", err->text, ours);
    return launch_fail(config, &both);
}

static int fail_to_meet(struct launch *launch, const struct ctrun_error *err)
{
    struct messages_block block;
    char owner[PORT_OWNER_TEXT_MAX];

    if (err->code == CTRUN_E_FINGERPRINT)
        return fail_unlike(launch->config, err);
    if (launch->config->backend ==
        CONFIG_ETCD) /* its own words: no endpoint is a node's */
        return launch_fail(launch->config, err);
    if (err->code == CTRUN_E_PORT_BUSY) {
        int rc = port_owner_describe(launch->config->endpoint.port, owner);

        hosts_explain_busy(&block, launch->config, rc == 0 ? owner : NULL);
    } else if (err->code == CTRUN_E_UNREACHABLE || err->code == CTRUN_E_DNS ||
               err->code == CTRUN_E_NO_HOST) {
        hosts_explain_unreachable(&block, &launch->hosts, launch->config, err);
    } else if (err->code == CTRUN_E_LEADER_LOST) {
        messages_explain_leader_lost(&block, err);
    } else {
        return launch_fail(launch->config, err);
    }
    messages_print(&block);
    write_own_error(launch->config, err->text);
    return launcher_code(launch->config, messages_exit_code(err->code));
}

/* A run that was cut short, but all of whose workers here have saved and ended with 0, may say
 * so by a code of its own: the job wants to be queued again. */
static int requeue_code(const struct launch *launch, const struct agent_result *result,
                        int code)
{
    const struct ct_verdict *verdict = &result->verdict;
    bool is_cut_short = result->signal || result->passed_signal;

    if (launch->config->requeue_exit == 0 || !is_cut_short || result->error.code ||
        verdict->generation == 0 || verdict->failure_count > 0)
        return code;
    if (verdict->outcome != CT_OUTCOME_SUCCEEDED && !result->signal)
        return code;
    messages_say("saved and ended early: exit code %d asks for a requeue",
                 launch->config->requeue_exit);
    return launch->config->requeue_exit;
}

static int end_by_signal(const struct launch *launch, int signal)
{
    const char *name = sigabbrev_np(signal);
    char text[128];

    (void)ct_format(text, sizeof text,
                    "SignalException: Process %d got signal: %d (%s%s)", (int)getpid(),
                    signal, name ? "SIG" : "", name ? name : "?");
    messages_say("stopped by %s%s (%d); all workers are gone", name ? "SIG" : "signal ",
                 name ? name : "", signal);
    write_own_error(launch->config, text);
    return launcher_code(launch->config, CT_EXIT_SIGNAL + signal);
}

/* The error files of this node's failures: the whole text, not what fits into a
 * message. */
static void read_error_files(const struct launch *launch,
                             const struct ct_verdict *verdict,
                             struct json_error_file *files)
{
    for (int i = 0; i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (failure->error_file[0] && strcmp(failure->host, launch->config->host) == 0)
            (void)json_error_file_read(failure->error_file, &files[i]);
    }
}

static void copy_root_error(const struct launch *launch,
                            const struct ct_verdict *verdict)
{
    const struct ct_failure *root = &verdict->failures[0];
    const char *path = own_error_file(launch->config);
    struct ctrun_error err;

    if (!path)
        return;
    if (!verdict->failure_count)
        write_own_error(launch->config, "RendezvousTimeoutError: not all nodes joined");
    else if (root->error_file[0] && strcmp(root->host, launch->config->host) == 0 &&
             json_error_file_copy(root->error_file, path, summary_python_code(root),
                                  &err) < 0)
        messages_error(&err);
}

static struct summary describe_run(const struct launch *launch,
                                   const struct ct_verdict *verdict)
{
    return (struct summary){
        .verdict = verdict,
        .name = launch->config->program.name,
        .run_id = launch->config->run_id,
        .log_dir = logdir_aside_has_files(&launch->logdir) ? launch->logdir.dir.attempt
                                                           : NULL,
        .max_restarts = launch->config->max_restarts,
        .min_nodes = (uint32_t)launch->config->nodes.min,
        .min_uptime_ms = launch->config->min_uptime_ms,
        .waiting = &launch->waiting,
        .waited_ms = launch->waited_ms,
    };
}

static int end_by_verdict(const struct launch *launch, const struct ct_verdict *verdict)
{
    struct json_error_file files[CT_FAILURES_MAX] = {0};
    struct messages_block block;
    struct summary summary = describe_run(launch, verdict);

    summary.files = files;
    if (verdict->outcome == CT_OUTCOME_SUCCEEDED)
        return CT_EXIT_OK;
    read_error_files(launch, verdict, files);
    summary_format(&block, &summary);
    messages_print(&block);
    summary_format_torchrun(&block, &summary);
    messages_print(&block);
    copy_root_error(launch, verdict);
    for (int i = 0; i < CT_FAILURES_MAX; i++)
        json_error_file_deinit(&files[i]);
    return summary_exit_code(verdict, launch->config->torchrun_exit_code);
}

/* This node's own end: what could not be killed comes first, whatever failed before it. */
static int end_unkillable(struct launch *launch, struct agent_result *result)
{
    struct ct_verdict *verdict = &result->verdict;
    const struct ct_failure first = verdict->failures[0];
    int i = 0;

    while (i < verdict->failure_count &&
           verdict->failures[i].cause != CT_CAUSE_UNKILLABLE)
        i++;
    if (i == verdict->failure_count)
        return fail_to_meet(launch, &result->error); /* none of the workers */
    verdict->failures[0] = verdict->failures[i];
    verdict->failures[i] = first;
    verdict->outcome = CT_OUTCOME_FAILED;
    return end_by_verdict(launch, verdict);
}

/* Where people have asked for files, or there are some: a temporary directory that holds nothing
 * else goes away. What is wrong with it is told, and no failure of the run. */
static void write_summary(struct launch *launch, const struct agent_result *result,
                          int code)
{
    const struct config *config = launch->config;
    const struct summary summary = describe_run(launch, &result->verdict);
    const struct summary_json json = {
        .summary = &summary,
        .host = config->host,
        .exit_code = code,
        .signal = result->signal,
        .error = &result->error,
        .duration_ms = ct_now_ms() - launch->born_ms,
    };
    const struct logdir_request request = {.base = config->log_dir,
                                           .run_id = config->run_id};
    struct ctrun_error err;
    size_t length;
    char *text;

    if (config->has_no_files || (!config->log_dir && !summary.log_dir))
        return;
    if (!(text = summary_json_format(&json, &length)))
        ct_warn("summary.json: out of memory");
    else if (logdir_aside_write(&launch->logdir, &request, "summary.json", text, length,
                                &err) < 0)
        ct_warn("summary.json: %s", err.text);
}

/* ---- The whole ----------------------------------------------------------------------- */

static void fill_options(struct launch *launch, struct agent_options *out)
{
    const struct config *config = launch->config;

    out->hello.pid = getpid();
    out->hello.min_nodes = (uint32_t)config->nodes.min;
    out->hello.max_nodes = (uint32_t)config->nodes.max;
    out->hello.node_unit = config->node_unit;
    out->hello.max_restarts = config->max_restarts;
    out->hello.join_timeout_ms = config->join_timeout_ms;
    out->hello.last_call_ms = config->last_call_ms;
    out->hello.heartbeat_ms = config->heartbeat_ms;
    out->hello.lost_after_ms = config->lost_after_ms;
    (void)ct_copy(out->hello.run_id, sizeof out->hello.run_id, config->run_id);
    (void)ct_copy(out->hello.host, sizeof out->hello.host, config->host);

    out->join.slots = (uint32_t)config->nproc;
    out->join.fingerprint = fingerprint_of(config);
    if (config->nodes.max > 1)
        out->join.program = program_hash(&config->program,
                                         option_env(config->env, "PATH"));
    out->join.node_rank_hint = config->node_rank;
    out->join.is_endpoint = launch->hosts.is_mine;
    (void)ct_copy(out->join.role, sizeof out->join.role, config->role);
    addresses_fill_join(&launch->addresses, config, &out->join);
}

static void tell_torch_events(struct launch *launch, const struct agent_result *result)
{
    char text[64];
    const char *why = NULL;

    if (result->signal) {
        (void)ct_format(text, sizeof text, "SignalException: signal %d",
                        result->signal);
        why = text;
    } else if (result->error.code) {
        why = result->error.text;
    } else if (result->verdict.outcome == CT_OUTCOME_JOIN_TIMEOUT) {
        why = "RendezvousTimeoutError: not all nodes joined";
    }
    torch_events_over(&launch->torch_events, why);
}

static int run_agent(struct launch *launch)
{
    const struct config *config = launch->config;
    struct agent_options *options = ct_zalloc(sizeof *options);
    struct agent_result *result = ct_zalloc(sizeof *result);
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    int code;

    if (!options || !result) {
        code = launch_fail(config, &err);
        goto done;
    }
    *options = (struct agent_options){
        .server = launch->hosts.addrs,
        .server_count = launch->hosts.count,
        .find_servers = launch->candidacy ? find_servers : NULL,
        .token = &config->token,
        .uses_munge = config->uses_munge,
        .wants_seal = config->wants_seal,
        .hosts_server = launch->hosts_rendezvous,
        .connect_timeout_ms = config->connect_timeout_ms,
        .grace_ms = config->grace_ms,
        .signal_grace_ms = config->signal_grace_ms,
        .keeps_signals = config->keeps_signals,
        .signals = config->signals,
        .signal_count = config->signal_count,
        .out_filters = (const char *const *)config->out_filters,
        .err_filters = (const char *const *)config->err_filters,
        .ranks_prefix = config->collapses ? ranks_prefix : NULL,
        .log_max_bytes = config->log_max_bytes,
        .log_keep = config->log_keep,
        .min_uptime_ms = config->min_uptime_ms,
        .hang_timeout_ms = config->hang_timeout_ms,
        .stuck_limit_ms = config->stuck_limit_ms,
        .timer_file = *config->timer_file ? config->timer_file : NULL,
        .context = launch,
        .plan = plan,
        .open_store = open_store,
        .close_store = close_store,
        .describe = describe,
        .parse_timer = parse_timer,
        .on_connecting = on_connecting,
        .on_break = on_break,
        .on_back = on_back,
        .on_waiting = on_waiting,
        .on_way = on_way,
        .on_members = on_members,
        .on_start = on_start,
        .on_stop = on_stop,
        .signals_are_exact = seat_get()->is_given,
        .on_signal = on_signal,
        .why = why,
        .on_countdown = on_countdown,
        .on_worker_started = on_worker_started,
        .on_resize = on_resize,
        .on_lost = on_lost,
        .on_returned = on_returned,
        .on_worker_ended = on_worker_ended,
    };
    fill_options(launch, options);
    if (agent_run(options, result, &err) < 0)
        result->error = err;
    tell_torch_events(launch, result);
    if (result->is_mid_line && (result->signal || result->error.code ||
                                result->verdict.outcome != CT_OUTCOME_SUCCEEDED))
        messages_end_line(); /* our first line is for grep: it begins a line */
    if (result->signal)
        code = end_by_signal(launch, result->signal);
    else if (result->error.code == CTRUN_E_UNKILLABLE)
        code = end_unkillable(launch, result);
    else if (result->error.code)
        code = fail_to_meet(launch, &result->error);
    else
        code = end_by_verdict(launch, &result->verdict);
    code = requeue_code(launch, result, code);
    write_summary(launch, result, code);
done:
    free(options);
    free(result);
    return code;
}

/* What a person could take for a fault later on. */
static void say_beginning(const struct config *config)
{
    char text[NESTED_TEXT_MAX];

    if (*nested_format(text, sizeof text, config->env))
        messages_say("%s", text);
    if (config->requeues && config->node_rank <= 0)
        messages_say("%s has requeued this job %u time%s", config->batch_system,
                     config->requeues, config->requeues > 1 ? "s" : "");
}

int launch_run(const struct config *config)
{
    struct launch *launch = ct_zalloc(sizeof *launch);
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    struct messages_block block;
    int code;

    if (!launch)
        return launch_fail(config, &err);
    say_beginning(config);
    launch->config = config;
    launch->born_ms = ct_now_ms();
    if (preflight_check_endpoint(&block, config) < 0) {
        messages_print(&block);
        write_own_error(config, "the endpoint is a loopback address");
        free(launch);
        return launcher_code(config, CT_EXIT_REFUSED);
    }
    preflight_warn(config);
    if (config->backend == CONFIG_LOCAL) /* the first round is near, and known */
        make_folders(launch, 1, 0);
    if (torch_events_init(&launch->torch_events, config) < 0)
        code = launch_fail(config, &err);
    else if (addresses_resolve(&launch->addresses, config, &err) < 0 ||
             hosts_resolve(&launch->hosts, config, &err) < 0 ||
             host_rendezvous(launch, &err) < 0)
        code = fail_to_meet(launch, &err);
    else
        code = run_agent(launch);
    if (launch->candidacy && launch->server)
        server_join(launch->server); /* what it says last is kept before */
    if (launch->candidacy)
        candidacy_stop(launch->candidacy);
    server_destroy(launch->server);
    candidacy_destroy(launch->candidacy);
    logdir_aside_close(&launch->logdir);
    torch_events_deinit(&launch->torch_events);
    free(launch);
    return code;
}
