/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config.h"

#include <errno.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/devices.h"
#include "launcher/rdzv_conf.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum { /* torchrun's numbers, where it has them */
    C10D_PORT = 29400,
    STATIC_PORT = 29500,
    JOIN_TIMEOUT_MS = 600 * 1000,
    STATIC_TIMEOUT_MS = 900 * 1000,
    LAST_CALL_MS = 30 * 1000,
    GRACE_MS = 30 * 1000,
    KEEP_ALIVE_INTERVAL_MS = 5000,
    KEEP_ALIVE_ATTEMPTS = 3,
    HEARTBEAT_MS = 1000, /* ours: a lost node is known after five seconds */
    LOST_AFTER_MS = 5000,
    GRACE_MAX_S = 30 * 24 * 3600,
};

static const char *text_of(const struct options *options, enum option_id id)
{
    const char *text = options->values[id].text;

    return text ? text : "";
}

static bool was_given(const struct options *options, enum option_id id)
{
    return option_is_given(options, id) && *text_of(options, id);
}

const char *config_backend_name(enum config_backend backend)
{
    static const char *const names[] = {"local", "static", "c10d"};

    return names[backend];
}

/* ---- What comes with a later version: said in one line, never ignored -------------------- */

static int refuse_unsupported(const struct options *options, struct ctrun_error *err)
{
    const char *handler = text_of(options, OPTION_EVENT_LOG_HANDLER);
    const char *method = text_of(options, OPTION_START_METHOD);

    if (was_given(options, OPTION_LOGS_SPECS))
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--logs-specs=%s: names a Python plug-in, which ctrun cannot load; use "
            "--log-dir, --redirects and --tee",
            text_of(options, OPTION_LOGS_SPECS));
    if (was_given(options, OPTION_NUMA_BINDING)) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");

        if (devices_gpu_count(visible) == 0)
            return ct_fail(
                err, -EINVAL,
                "--numa-binding=%s: No accelerator available for NUMA binding",
                text_of(options, OPTION_NUMA_BINDING));
        return ct_fail(err, CTRUN_E_USAGE,
                       "--numa-binding=%s: not supported yet; leave it out",
                       text_of(options, OPTION_NUMA_BINDING));
    }
    if (strcmp(handler, "null") != 0 && strcmp(handler, "dynamic_rendezvous") != 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--event-log-handler=%s: not supported; CTRUN_EVENTS=FILE writes "
            "ctrun's events as JSON lines",
            handler);
    if (strcmp(method, "spawn") != 0)
        ct_warn("--start-method=%s has no effect: workers are started by exec", method);
    return 0;
}

static void warn_environment(char *const *env)
{
    static const struct {
        const char *name;
        const char *why;
    } names[] = {
        {"TORCHELASTIC_HEALTH_CHECK_PORT", "no health check server started"},
        {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "not supported yet"},
        {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
         "no need: each round has a worker store of its own"},
    };
    const char *timer = option_env(env, "TORCHELASTIC_ENABLE_FILE_TIMER");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = option_env(env, names[i].name);

        if (value && strtod(value, NULL) > 0)
            ct_warn("%s=%s is ignored: %s", names[i].name, value, names[i].why);
    }
    if (timer && strcmp(timer, "1") == 0)
        ct_warn("TORCHELASTIC_ENABLE_FILE_TIMER=1 is ignored: not supported yet");
}

/* ---- Sizes and names --------------------------------------------------------------------- */

static int count_gpus(const void *env)
{
    return devices_gpu_count(
        option_env(*(char *const *const *)env, "CUDA_VISIBLE_DEVICES"));
}

static int count_cpus(const void *env)
{
    (void)env;
    return devices_cpu_count();
}

static int resolve_sizes(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const struct nproc_source source = {count_gpus, count_cpus, &out->env};
    const struct option_value *restarts = &options->values[OPTION_MAX_RESTARTS];
    const char *nproc = text_of(options, OPTION_NPROC_PER_NODE);
    int rc;

    if ((rc = nnodes_parse(text_of(options, OPTION_NNODES), &out->nodes, err)) < 0 ||
        (rc = nproc_parse(nproc, &source, &out->nproc, err)) < 0)
        return rc;
    if (strspn(nproc, "abcdefghijklmnopqrstuvwxyz"))
        ct_info("nproc_per_node=%s: %d workers", nproc, out->nproc);
    if (restarts->integer < 0 || restarts->integer > INT32_MAX)
        return ct_fail(err, -EINVAL, "--max-restarts=%s: max_restarts must be >= 0",
                       restarts->text);
    out->max_restarts = (uint32_t)restarts->integer;
    if (!(options->values[OPTION_MONITOR_INTERVAL].number > 0))
        return ct_fail(err, -EINVAL, "--monitor-interval=%s: must be > 0",
                       text_of(options, OPTION_MONITOR_INTERVAL));
    return 0;
}

/* A version 4 UUID, as torchrun gives to a run that has no other name. */
static int make_run_id(char *dst, size_t size, struct ctrun_error *err)
{
    uint8_t b[16];

    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return ct_fail(err, -errno, "run id: no random bytes");
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    (void)ct_format(
        dst, size,
        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
        b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
        b[13], b[14], b[15]);
    return 0;
}

static int resolve_names(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const char *role = text_of(options, OPTION_ROLE);
    const char *id = text_of(options, OPTION_RDZV_ID);
    bool keeps_id = was_given(options, OPTION_RDZV_ID) || out->backend != CONFIG_LOCAL;

    if (gethostname(out->host, sizeof out->host) < 0)
        (void)ct_copy(out->host, sizeof out->host, "localhost");
    out->host[sizeof out->host - 1] = '\0';
    if (ct_copy(out->role, sizeof out->role, role) < 0)
        return ct_fail(err, -EINVAL, "--role: '%.40s...' is longer than %d bytes", role,
                       CT_ROLE_MAX - 1);
    if (ct_copy(out->local_addr, sizeof out->local_addr,
                text_of(options, OPTION_LOCAL_ADDR)) < 0)
        return ct_fail(err, -EINVAL, "--local-addr: longer than a host name can be");
    if (options->values[OPTION_STANDALONE].is_on || !keeps_id)
        return make_run_id(out->run_id, sizeof out->run_id, err);
    if (ct_copy(out->run_id, sizeof out->run_id, id) < 0)
        return ct_fail(err, -EINVAL, "--rdzv-id: '%.40s...' is longer than %d bytes",
                       id, CT_RUN_ID_MAX - 1);
    return 0;
}

/* ---- Where to meet ----------------------------------------------------------------------- */

static int choose_backend(struct config *out, const struct options *options,
                          struct ctrun_error *err)
{
    const char *name = text_of(options, OPTION_RDZV_BACKEND);
    bool has_endpoint = was_given(options, OPTION_RDZV_ENDPOINT);
    bool has_port = was_given(options, OPTION_MASTER_PORT);
    bool is_placed = has_port || was_given(options, OPTION_MASTER_ADDR) ||
                     option_is_given(options, OPTION_NODE_RANK);

    if (option_is_given(options, OPTION_RDZV_BACKEND) && !*name)
        return ct_fail(err, -EINVAL,
                       "The rendezvous backend name must be a non-empty string.");
    if (strcmp(name, "etcd") == 0 || strcmp(name, "etcd-v2") == 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--rdzv-backend=%s: not supported yet; use c10d, which needs no server "
            "of its own",
            name);
    if (*name && strcmp(name, "static") != 0 && strcmp(name, "c10d") != 0)
        return ct_fail(
            err, -EINVAL,
            "The rendezvous backend '%s' is not registered. Use c10d or static.", name);
    if (options->values[OPTION_STANDALONE].is_on)
        out->backend = CONFIG_LOCAL;
    else if (strcmp(name, "c10d") == 0)
        out->backend = CONFIG_C10D;
    else if (out->nodes.max == 1 && !has_endpoint && !has_port)
        out->backend = CONFIG_LOCAL; /* torchrun does so for static too */
    else if (!*name && has_endpoint && out->nodes.max > 1 && !is_placed)
        out->backend = CONFIG_C10D;
    else
        out->backend = CONFIG_STATIC;
    return 0;
}

static int resolve_static(struct config *out, const struct options *options,
                          struct ctrun_error *err)
{
    const struct option_value *rank = &options->values[OPTION_NODE_RANK];
    const struct option_value *port = &options->values[OPTION_MASTER_PORT];
    const char *endpoint = text_of(options, OPTION_RDZV_ENDPOINT);
    int rc;

    if (rank->integer < 0 || rank->integer >= out->nodes.max)
        return ct_fail(err, -EINVAL, "--node-rank=%s: must be 0 to %d with --nnodes=%s",
                       rank->text, out->nodes.max - 1, text_of(options, OPTION_NNODES));
    out->node_rank = (int)rank->integer;
    out->nodes.min = out->nodes.max; /* static waits for all */
    if (*endpoint) {
        if ((rc = ct_endpoint_parse(endpoint, &out->endpoint, err)) < 0)
            return rc;
        if (out->endpoint.port < 0)
            return ct_fail(
                err, -EINVAL,
                "port is missing in endpoint: %s. Try to specify --master-port",
                endpoint);
        return 0;
    }
    if ((rc = ct_endpoint_parse(text_of(options, OPTION_MASTER_ADDR), &out->endpoint,
                                err)) < 0)
        return rc;
    if (port->text && (port->integer < 0 || port->integer > 65535))
        return ct_fail(err, -EINVAL, "--master-port=%s: must be 0 to 65535",
                       port->text);
    out->endpoint.port = port->text ? (int)port->integer : STATIC_PORT;
    return 0;
}

static int resolve_endpoint(struct config *out, const struct options *options,
                            struct ctrun_error *err)
{
    int rc;

    out->node_rank = -1;
    if (out->backend == CONFIG_STATIC)
        return resolve_static(out, options, err);
    if (out->backend == CONFIG_LOCAL) {
        if (out->nodes.min > 1)
            return ct_fail(err, -EINVAL,
                           "--standalone is one node, but --nnodes=%s asks for more",
                           text_of(options, OPTION_NNODES));
        out->nodes.max = 1;
        return ct_endpoint_parse("127.0.0.1:0", &out->endpoint, err);
    }
    if (!was_given(options, OPTION_RDZV_ENDPOINT) &&
        was_given(options, OPTION_MASTER_ADDR))
        ct_warn("master_addr is only used for static rdzv_backend when rdzv_endpoint "
                "is not "
                "specified; the endpoint is localhost:%d",
                C10D_PORT);
    if (options->values[OPTION_NODE_RANK].integer != 0)
        ct_warn(
            "--node-rank: node_rank is only used for static rdzv_backend. It will be "
            "ignored for rdzv_backend=c10d.");
    rc = ct_endpoint_parse(text_of(options, OPTION_RDZV_ENDPOINT), &out->endpoint, err);
    if (rc < 0)
        return rc;
    if (!out->endpoint.host[0])
        (void)ct_copy(out->endpoint.host, sizeof out->endpoint.host, "localhost");
    if (out->endpoint.port < 0)
        out->endpoint.port = C10D_PORT;
    return 0;
}

/* ---- Times ------------------------------------------------------------------------------- */

static int resolve_keep_alive(struct config *out, const struct rdzv_conf *conf,
                              struct ctrun_error *err)
{
    uint64_t interval_ms = KEEP_ALIVE_INTERVAL_MS;
    int64_t attempts = KEEP_ALIVE_ATTEMPTS;
    int has_interval = rdzv_conf_get_seconds(conf, "keep_alive_interval", &interval_ms,
                                             err);
    int has_attempts = rdzv_conf_get_int(conf, "keep_alive_max_attempt", &attempts,
                                         err);

    if (has_interval < 0 || has_attempts < 0)
        return -EINVAL;
    if (attempts < 1 || attempts > 10000)
        return ct_fail(err, -EINVAL,
                       "--rdzv-conf: keep_alive_max_attempt must be positive");
    out->heartbeat_ms = HEARTBEAT_MS;
    out->lost_after_ms = LOST_AFTER_MS;
    if (!has_interval && !has_attempts)
        return 0;
    out->lost_after_ms = interval_ms * (uint64_t)attempts;
    if (out->heartbeat_ms > out->lost_after_ms / 3)
        out->heartbeat_ms = out->lost_after_ms /
                            3; /* one lost packet is no lost node */
    return 0;
}

static int check_backoff(const struct rdzv_conf *conf, struct ctrun_error *err)
{
    const char *text = rdzv_conf_get(conf, "cas_backoff_max_seconds");
    double seconds;
    char *end;

    if (!text)
        return 0;
    seconds = strtod(text, &end);
    if (end == text || *end)
        return ct_fail(
            err, -EINVAL,
            "--rdzv-conf: cas_backoff_max_seconds('%s') is not a valid float value.",
            text);
    if (!(seconds >= 0 && seconds <= 1e300))
        return ct_fail(err, -EINVAL,
                       "--rdzv-conf: cas_backoff_max_seconds (%s) must be finite and "
                       "non-negative.",
                       text);
    return 0;
}

/* Keys that c10d checks although ctrun has no use for them: a typo is a typo. */
static int check_unused(const struct rdzv_conf *conf, struct ctrun_error *err)
{
    static const char *const keys[] = {"close_timeout", "heartbeat_timeout"};
    const char *store = rdzv_conf_get(conf, "store_type");
    uint64_t unused;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (rdzv_conf_get_seconds(conf, keys[i], &unused, err) < 0)
            return -EINVAL;
    if (store && strcmp(store, "tcp") != 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: store_type=%s is not supported; leave it out: tcp",
                       store);
    return check_backoff(conf, err);
}

static int resolve_times(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    struct rdzv_conf conf;
    bool is_host;
    int rc;

    if ((rc = rdzv_conf_parse(text_of(options, OPTION_RDZV_CONF), &conf, err)) < 0)
        return rc;
    out->join_timeout_ms = JOIN_TIMEOUT_MS;
    out->last_call_ms = LAST_CALL_MS;
    if (out->backend == CONFIG_STATIC) {
        out->join_timeout_ms = STATIC_TIMEOUT_MS;
        rc = rdzv_conf_get_seconds(&conf, "timeout", &out->join_timeout_ms, err);
    } else if ((rc = rdzv_conf_get_seconds(&conf, "join_timeout", &out->join_timeout_ms,
                                           err)) >= 0 &&
               (rc = rdzv_conf_get_seconds(&conf, "last_call_timeout",
                                           &out->last_call_ms, err)) >= 0) {
        rc = check_unused(&conf, err);
    }
    if (rc < 0 || (rc = resolve_keep_alive(out, &conf, err)) < 0)
        return rc;
    out->connect_timeout_ms = out->join_timeout_ms; /* nodes start in any order */
    if ((rc = rdzv_conf_get_seconds(&conf, "read_timeout", &out->connect_timeout_ms,
                                    err)) < 0 ||
        (rc = rdzv_conf_get_bool(&conf, "is_host", &is_host, err)) < 0)
        return rc;
    if (rc == 1)
        out->is_host = is_host ? CONFIG_HOST_YES : CONFIG_HOST_NO;
    return 0;
}

/* ---- Stopping ---------------------------------------------------------------------------- */

static int find_signal(const char *name, size_t length)
{
    if (length > 3 && strncmp(name, "SIG", 3) == 0) {
        for (int n = 1; n < SIGRTMIN; n++) {
            const char *abbreviation = sigabbrev_np(n);

            if (abbreviation && strlen(abbreviation) == length - 3 &&
                strncmp(abbreviation, name + 3, length - 3) == 0)
                return n;
        }
    }
    return 0;
}

static void resolve_signals(struct config *out, const struct options *options)
{
    const char *rest = text_of(options, OPTION_SIGNALS_TO_HANDLE);
    size_t length;

    out->signals_text = rest;
    for (const char *name; (name = ct_next_field(&rest, ',', &length));) {
        size_t blanks = strspn(name, " \t");
        int n;

        blanks = blanks > length ? length : blanks;
        name += blanks;
        length -= blanks;
        while (length && strchr(" \t", name[length - 1]))
            length--;
        n = find_signal(name, length);
        if (n == 0 || n == SIGKILL || n == SIGSTOP || n == SIGCHLD)
            ct_warn("--signals-to-handle: '%.*s' is no signal that can be handled",
                    (int)length, name);
        else if (out->signal_count < CONFIG_SIGNALS_MAX)
            out->signals[out->signal_count++] = n;
    }
}

static int resolve_grace(struct config *out, const struct options *options,
                         struct ctrun_error *err)
{
    const struct option_value *option = &options->values[OPTION_SHUTDOWN_TIMEOUT];
    const char *name = "--shutdown-timeout";
    const char *text = option->text;
    int64_t seconds = option->integer;

    out->grace_ms = GRACE_MS;
    if (!text) {
        name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
        if (!(text = option_env(out->env, name)))
            return 0;
        if (option_parse_int(text, &seconds) < 0)
            return ct_fail(err, -EINVAL, "%s=%s: not a number of seconds", name, text);
    }
    if (seconds < 0 || seconds > GRACE_MAX_S)
        return ct_fail(err, -EINVAL,
                       "%s=%s: shutdown_timeout must be non-negative, got %lld", name,
                       text, (long long)seconds);
    out->grace_ms = (uint64_t)seconds * 1000;
    return 0;
}

/* ---- Output ------------------------------------------------------------------------------ */

/* "a,,b,c" is "a,b" and "c". */
static int parse_filters(const char *text, char **out, const char *option,
                         struct ctrun_error *err)
{
    size_t room = strlen(text) + 1;
    int count = 0;

    while (*text) {
        size_t length = 0;

        if (count == CONFIG_FILTERS_MAX)
            return ct_fail(err, -EINVAL, "%s: more than %d texts", option,
                           CONFIG_FILTERS_MAX);
        if (!(out[count] = ct_zalloc(room)))
            return -ENOMEM;
        while (*text && !(text[0] == ',' && text[1] != ',')) {
            out[count][length++] = *text;
            text += text[0] == ',' ? 2 : 1;
        }
        text += *text == ',';
        if (length) {
            count++;
        } else { /* an empty text would match everything */
            free(out[count]);
            out[count] = NULL;
        }
    }
    return 0;
}

static int resolve_output(struct config *out, const struct options *options,
                          struct ctrun_error *err)
{
    const char *environment = option_env(out->env,
                                         "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    const char *template = text_of(options, OPTION_LOG_LINE_PREFIX_TEMPLATE);
    struct stat info;
    int rc;

    rc = streams_parse(&out->streams, text_of(options, OPTION_REDIRECTS),
                       text_of(options, OPTION_TEE),
                       text_of(options, OPTION_LOCAL_RANKS_FILTER), err);
    if (rc < 0)
        return rc;
    if (was_given(options, OPTION_LOG_DIR))
        out->log_dir = text_of(options, OPTION_LOG_DIR);
    out->has_no_files = out->log_dir && strcmp(out->log_dir, "/dev/null") == 0;
    if (out->log_dir && !out->has_no_files && stat(out->log_dir, &info) == 0 &&
        !S_ISDIR(info.st_mode))
        return ct_fail(err, -EINVAL, "--log-dir: log_dir: %s is a file", out->log_dir);
    if (!*template)
        template = environment &&*environment ? environment
                                              : "[${role_name}${local_rank}]:";
    out->prefix_template = template;
    if ((rc = parse_filters(text_of(options, OPTION_DUPLICATE_STDOUT_FILTERS),
                            out->out_filters, "--duplicate-stdout-filters", err)) < 0)
        return rc;
    return parse_filters(text_of(options, OPTION_DUPLICATE_STDERR_FILTERS),
                         out->err_filters, "--duplicate-stderr-filters", err);
}

static int check_devices(const struct config *config, struct ctrun_error *err)
{
    const char *name = "HIP_VISIBLE_DEVICES";
    const char *visible = option_env(config->env, name);
    char entry[256];

    if (!config->virtual_local_rank)
        return 0;
    if (!visible || !*visible)
        visible = option_env(config->env, name = "CUDA_VISIBLE_DEVICES");
    if (!visible || !*visible)
        return 0;
    for (int i = 0; i < config->nproc; i++)
        if (devices_visible_entry(visible, i, entry, sizeof entry) < 0)
            return ct_fail(
                err, -EINVAL,
                "--virtual-local-rank: local_rank %d exceeds available GPUs in "
                "%s=%s",
                i, name, visible);
    return 0;
}

static void resolve_omp(struct config *out)
{
    static const char stars[] = "*****************************************";

    out->sets_omp_threads = out->nproc > 1 && !option_env(out->env, "OMP_NUM_THREADS");
    if (!out->sets_omp_threads)
        return;
    ct_warn("\n%s\nSetting OMP_NUM_THREADS environment variable for each process to be "
            "1 in "
            "default, to avoid your system being overloaded, please further tune the "
            "variable "
            "for optimal performance in your application as needed. \n%s",
            stars, stars);
}

int config_resolve(struct config *out, const struct options *options, char *const *env,
                   struct ctrun_error *err)
{
    int rc;

    *out = (struct config){.env = env};
    out->virtual_local_rank = options->values[OPTION_VIRTUAL_LOCAL_RANK].is_on;
    out->torchrun_exit_code = strcmp(text_of(options, OPTION_EXIT_CODE), "torchrun") ==
                              0;
    if ((rc = refuse_unsupported(options, err)) < 0 ||
        (rc = resolve_sizes(out, options, err)) < 0 ||
        (rc = choose_backend(out, options, err)) < 0 ||
        (rc = resolve_endpoint(out, options, err)) < 0 ||
        (rc = resolve_times(out, options, err)) < 0 ||
        (rc = resolve_names(out, options, err)) < 0 ||
        (rc = resolve_grace(out, options, err)) < 0 ||
        (rc = resolve_output(out, options, err)) < 0 ||
        (rc = check_devices(out, err)) < 0 ||
        (rc = program_resolve(&out->program, options, env, err)) < 0)
        return rc;
    resolve_signals(out, options);
    resolve_omp(out);
    warn_environment(env);
    return 0;
}

void config_deinit(struct config *config)
{
    for (int i = 0; i < CONFIG_FILTERS_MAX; i++) {
        free(config->out_filters[i]);
        free(config->err_filters[i]);
    }
}
