/* SPDX-License-Identifier: Apache-2.0 */
/* Guard and agent without a launcher. The rendezvous of the tests (rendezvous.py) controls them,
 * and the event "harness_result" has the result of agent_run().
 *
 *     agent_harness [--option value]... -- PROGRAM [WORD]... */
#include <signal.h>

#include "agent/agent.h"
#include "agent/guard/guard.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

extern char **environ;

struct harness {
    struct agent_options options;
    struct ct_addr servers[4];
    enum agent_stream out;
    enum agent_stream err;
    const char *log_dir;
    const char *prefix;
    const char *filters[2];
    struct bind bind; /* of worker 0 */
    int signals[8];
    bool has_guard;
    bool store_is_used;
    const char
        *store_ranks; /* a file with the number of ranks that have counted themselves */
    char **program;
};

static const char *const stream_names[] = {"console", "file", "tee", "drop", "teefile"};

static enum agent_stream parse_stream(const char *name)
{
    for (int i = 0; i < 5; i++)
        if (strcmp(stream_names[i], name) == 0)
            return (enum agent_stream)i;
    fprintf(stderr, "agent_harness: no stream %s\n", name);
    exit(2);
}

static char *path_of(const char *dir, int rank, const char *name)
{
    char text[512];

    (void)ct_format(text, sizeof text, "%s/%d.%s", dir, rank, name);
    return ct_strdup(text);
}

static void plan_files(const struct harness *harness, int local_rank,
                       struct agent_worker_plan *plan)
{
    char prefix[64];

    plan->out = harness->out;
    plan->err = harness->err;
    if (harness->log_dir) {
        plan->out_file = path_of(harness->log_dir, local_rank, "out");
        plan->err_file = path_of(harness->log_dir, local_rank, "err");
        plan->error_file = path_of(harness->log_dir, local_rank, "error.json");
        plan->filtered_out_file = path_of(harness->log_dir, 0, "filtered");
        (void)ct_env_set(&plan->env, CT_ENV_ERROR_FILE, plan->error_file);
    }
    if (harness->prefix) {
        (void)ct_format(prefix, sizeof prefix, "[%s%d]:", harness->prefix, local_rank);
        plan->prefix = ct_strdup(prefix);
    }
}

static int plan(void *context, const struct ct_start *start, int local_rank,
                struct agent_worker_plan *out, struct ctrun_error *err)
{
    const struct harness *harness = context;
    size_t count = 0;

    (void)err;
    while (harness->program[count])
        count++;
    out->argv = ct_zalloc_array(count + 1, sizeof *out->argv);
    for (size_t i = 0; i < count; i++)
        out->argv[i] = ct_strdup(harness->program[i]);
    (void)ct_env_init(&out->env, environ);
    (void)ct_env_setf(&out->env, CT_ENV_RANK, "%d", (int)start->rank_base + local_rank);
    (void)ct_env_setf(&out->env, CT_ENV_LOCAL_RANK, "%d", local_rank);
    (void)ct_env_setf(&out->env, CT_ENV_WORLD_SIZE, "%u", start->world_size);
    (void)ct_env_setf(&out->env, CT_ENV_MASTER_ADDR, "%s", start->master_addr);
    (void)ct_env_setf(&out->env, CT_ENV_MASTER_PORT, "%u", start->master_port);
    (void)ct_env_setf(&out->env, CT_ENV_RESTART_COUNT, "%u", start->restart_count);
    plan_files(harness, local_rank, out);
    if (local_rank == 0)
        out->bind = harness->bind;
    return 0;
}

static int open_store(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err)
{
    static uint64_t count;

    (void)context;
    (void)err;
    *port = 1;
    *store = ++count;
    ct_event_emit("store_opened", CT_INT("store", count));
    return 0;
}

static void close_store(void *context, uint64_t store)
{
    (void)context;
    ct_event_emit("store_closed", CT_INT("store", store));
}

static bool store_is_unused(void *context, uint64_t store)
{
    const struct harness *harness = context;

    (void)store;
    return !harness->store_is_used;
}

static void look_at_store(void *context, uint64_t store, const pid_t *pids, int count,
                          struct agent_store_marks *out)
{
    const struct harness *harness = context;
    FILE *file = harness->store_ranks ? fopen(harness->store_ranks, "re") : NULL;
    char text[32] = "";

    (void)store;
    (void)pids;
    (void)count;
    if (file && !fgets(text, sizeof text, file))
        *text = '\0';
    if (file)
        (void)fclose(file);
    *out = (struct agent_store_marks){.ranks = strtoull(text, NULL, 10), .last = -1};
}

static void emit_result(const struct agent_result *result)
{
    ct_event_emit(
        "harness_result", CT_INT("outcome", result->verdict.outcome),
        CT_INT("exit_code", result->verdict.exit_code),
        CT_INT("signal", result->signal),
        CT_STR("error", result->error.code ? ct_error_name(result->error.code) : ""),
        CT_STR("text", result->error.code ? result->error.text : ""),
        CT_INT("failures", result->verdict.failure_count));
}

static int agent_main(void *context)
{
    struct harness *harness = context;
    static struct agent_result result;
    struct ctrun_error err;

    if (agent_run(&harness->options, &result, &err) < 0) {
        fprintf(stderr, "agent_harness: %s\n", err.text);
        return CT_EXIT_FAILURE;
    }
    emit_result(&result);
    return result.error.code ? CT_EXIT_RETRY : result.verdict.exit_code;
}

static void on_log(void *context, enum ctrun_log_level level, const char *line)
{
    (void)context;
    (void)level;
    fprintf(stderr, "log: %s\n", line);
}

static void add_server(struct harness *harness, const char *text)
{
    struct ct_endpoint endpoint;
    struct ctrun_error err;

    if (ct_endpoint_parse(text, &endpoint, &err) < 0 ||
        ct_addr_parse(endpoint.host, endpoint.port,
                      &harness->servers[harness->options.server_count]) < 0) {
        fprintf(stderr, "agent_harness: server %s\n", text);
        exit(2);
    }
    harness->options.server_count++;
}

static void add_signals(struct harness *harness, const char *names)
{
    const char *name;
    size_t length;

    while ((name = ct_next_field(&names, ',', &length)))
        for (int i = 1; i < NSIG; i++)
            if (ct_signal_name(i) && strlen(ct_signal_name(i)) == length &&
                memcmp(ct_signal_name(i), name, length) == 0)
                harness->signals[harness->options.signal_count++] = i;
}

static void set(struct harness *harness, const char *name, const char *value)
{
    struct agent_options *options = &harness->options;
    const uint64_t number_ = strtoull(value, NULL, 10);

    if (strcmp(name, "server") == 0)
        add_server(harness, value);
    else if (strcmp(name, "workers") == 0)
        options->join.slots = (uint32_t)number_;
    else if (strcmp(name, "grace") == 0)
        options->grace_ms = number_;
    else if (strcmp(name, "connect-timeout") == 0)
        options->connect_timeout_ms = number_;
    else if (strcmp(name, "out") == 0)
        harness->out = parse_stream(value);
    else if (strcmp(name, "err") == 0)
        harness->err = parse_stream(value);
    else if (strcmp(name, "log-dir") == 0)
        harness->log_dir = value;
    else if (strcmp(name, "prefix") == 0)
        harness->prefix = value;
    else if (strcmp(name, "cpus") == 0)
        harness->bind.has_cpus = cpuset_parse(&harness->bind.cpus, value) == 0;
    else if (strcmp(name, "raise-files") == 0)
        harness->bind.raises_files = number_ != 0;
    else if (strcmp(name, "filter") == 0)
        harness->filters[0] = value;
    else if (strcmp(name, "signals") == 0)
        add_signals(harness, value);
    else if (strcmp(name, "log-max") == 0)
        options->workers.log_max_bytes = number_;
    else if (strcmp(name, "own-ranks") == 0)
        options->own_ranks_ms = number_;
    else if (strcmp(name, "absent") == 0)
        options->absent_ms = number_;
    else if (strcmp(name, "store-ranks") == 0)
        harness->store_ranks = value;
    else if (strcmp(name, "store-is-used") == 0)
        harness->store_is_used = number_ != 0;
    else if (strcmp(name, "log-keep") == 0)
        options->workers.log_keep = (int)number_;
    else if (strcmp(name, "no-guard") == 0)
        harness->has_guard = number_ == 0;
    else if (strcmp(name, "log") == 0)
        ct_log_set_sink(on_log, NULL, CTRUN_LOG_DEBUG);
}

static void parse(struct harness *harness, char **argv)
{
    struct agent_options *options = &harness->options;

    for (argv++; *argv && strcmp(*argv, "--") != 0; argv += 2)
        set(harness, *argv + 2, argv[1]);
    harness->program = argv + 1;
    options->server = harness->servers;
    options->signals = harness->signals;
    if (options->signal_count == 0)
        add_signals(harness, "TERM,INT,HUP,QUIT");
    if (harness->filters[0])
        options->workers.out_filters = harness->filters;
    options->context = harness;
    options->workers.context = harness;
    options->workers.plan = plan;
    options->open_store = open_store;
    options->close_store = close_store;
    options->store_is_unused = store_is_unused;
    options->look_at_store = look_at_store;
}

int main(int argc, char **argv)
{
    struct harness harness = {
        .has_guard = true,
        .options = {.join = {.slots = 2, .node_rank_hint = -1},
                    .grace_ms = 30000,
                    .connect_timeout_ms = 10000,
                    .hello = {.run_id = "harness",
                              .host = "here",
                              .min_nodes = 1,
                              .max_nodes = 1,
                              .heartbeat_ms = 1000,
                              .lost_after_ms = 5000}},
    };
    const char *events = getenv(CT_ENV_EVENTS);
    struct ctrun_error err;
    int rc;

    (void)argc;
    if (events)
        (void)ct_event_open(events);
    parse(&harness, argv);
    if (!harness.has_guard)
        return agent_main(&harness);
    rc = guard_run(agent_main, &harness, &err);
    if (rc < 0)
        fprintf(stderr, "agent_harness: %s\n", err.text);
    return rc < 0 ? CT_EXIT_FAILURE : rc;
}
