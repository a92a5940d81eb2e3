/* SPDX-License-Identifier: Apache-2.0 */
/* ctrund: the rendezvous server by itself, in the foreground, for many runs. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/journal/journal_file.h"
#include "rendezvous/main.h"
#include "rendezvous/notify.h"
#include "rendezvous/server/server.h"
#include "rendezvous/server/server_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/std_streams.h"
#include "worker_sdk/net/nic.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/wire/munge.h"

struct config {
    const char *listen[SERVER_LISTENERS_MAX];
    size_t listen_count;
    char port_listen[sizeof ":65535"]; /* --port */
    enum ctrun_log_level level;
    const char *token_file;
    const char *journal;        /* NULL: none */
    struct ct_auth_token token; /* empty: every agent is accepted */
    bool uses_munge;
    bool wants_seal;
    struct ct_port_range ports;
    uint64_t conns_max; /* 0: SERVER_CONNS_MAX */
};

static struct server *server; /* for the signal handler */

static void on_signal(int number)
{
    (void)number;
    server_stop(server);
}

static void print_help(void)
{
    printf(
        "usage: ctrund [--listen HOST:PORT]... [--port PORT] [--token-file FILE]\n"
        "              [--port-range A-B] [--munge] [--encrypt] [--max-connections N]\n"
        "              [--journal PATH] [--log-level LEVEL]\n"
        "\n"
        "Rendezvous server of ctrun as a program of its own, for the agents of many\n"
        "runs, each with its own run id.\n"
        "The same port is a TCPStore for PyTorch clients and answers GET /healthz,\n"
        "/livez, /status and /metrics. Runs in the foreground until SIGTERM or "
        "SIGINT.\n"
        "\n"
        "  --listen HOST:PORT  where to listen; may be repeated. An address is bound "
        "alone,\n"
        "                      a name means all addresses. Without HOST: all "
        "addresses with\n"
        "                      a token or --munge, else loopback. Default: :%d. Port "
        "0\n"
        "                      chooses one. The port in use is printed: \"listening "
        "on\n"
        "                      ADDRESS:PORT\"\n"
        "  --port PORT         as --listen :PORT\n"
        "  --munge             agents of this user's uid prove themselves by MUNGE, "
        "instead\n"
        "                      of a token\n"
        "  --encrypt           only agents that encrypt their link (ctrun --encrypt)\n"
        "  --port-range A-B    ports to choose from when --listen has port 0\n"
        "  --max-connections N the most connections at a time; more are refused\n"
        "  --journal PATH      file, or folder for one: a ctrund that was killed or\n"
        "                      restarted continues its runs from it, and their "
        "workers\n"
        "                      keep running\n"
        "  --token-file FILE   secret that agents must prove to have, and ctrund to "
        "them;\n"
        "                      also CTRUN_TOKEN=SECRET. TCPStore clients are refused\n"
        "  --log-level LEVEL   error, warning, info (default) or debug, to stderr\n"
        "  --version           print the version\n"
        "  --help              print this\n"
        "\n"
        "environment: %s=FILE gets one JSON object per change of a round\n",
        CT_C10D_PORT, CT_ENV_EVENTS);
}

static int end_output(void)
{
    if (fflush(stdout) == 0)
        return CT_EXIT_OK;
    fprintf(stderr, "ctrund: error[%s]: standard output: %s\n", ct_error_name(-errno),
            strerror(errno));
    return CT_EXIT_FAILURE;
}

static int usage_error(const char *what, const char *value)
{
    fprintf(stderr, "ctrund: error[E_USAGE]: %s%s; see ctrund --help\n", what, value);
    return CT_EXIT_USAGE;
}

static const struct option long_options[] = {
    {"listen", required_argument, NULL, 'l'},
    {"port", required_argument, NULL, 'P'},
    {"journal", required_argument, NULL, 'j'},
    {"token-file", required_argument, NULL, 't'},
    {"munge", no_argument, NULL, 'M'},
    {"encrypt", no_argument, NULL, 'e'},
    {"port-range", required_argument, NULL, 'p'},
    {"max-connections", required_argument, NULL, 'm'},
    {"log-level", required_argument, NULL, 'L'},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static int unknown_option(const char *word)
{
    struct ct_nearest near;
    char name[CT_NEAREST_WORD_MAX];

    (void)ct_format(name, sizeof name, "%.*s", (int)strcspn(word, "="),
                    word); /* cut is fine */
    near = ct_nearest_to(name + strspn(name, "-"));
    for (const struct option *option = long_options; option->name; option++)
        ct_nearest_offer(&near, option->name);
    if (!near.word)
        return usage_error("unknown option ", word);
    fprintf(stderr, "ctrund: error[E_USAGE]: unknown option %s; did you mean --%s?\n",
            word, near.word);
    return CT_EXIT_USAGE;
}

/* -1: continue; else the exit code. */
static int parse(int argc, char **argv, struct config *config)
{
    uint64_t port;
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        switch (c) {
        case 'l':
            if (config->listen_count == SERVER_LISTENERS_MAX)
                return usage_error("one --listen too many: ", optarg);
            config->listen[config->listen_count++] = optarg;
            break;
        case 'P':
            if (ct_parse_u64(optarg, 0, 65535, &port) < 0)
                return usage_error("--port: not 0 to 65535: ", optarg);
            (void)ct_format(config->port_listen, sizeof config->port_listen, ":%d",
                            (int)port);
            break;
        case 'j': config->journal = optarg; break;
        case 't': config->token_file = optarg; break;
        case 'M': config->uses_munge = true; break;
        case 'e': config->wants_seal = true; break;
        case 'p':
            if (ct_port_range_parse(optarg, &config->ports, NULL) < 0)
                return usage_error("--port-range: not FIRST-LAST: ", optarg);
            break;
        case 'm':
            if (ct_parse_u64(optarg, 1, 10000000, &config->conns_max) < 0)
                return usage_error("--max-connections: not 1 to 10000000: ", optarg);
            break;
        case 'L':
            if (ct_log_parse_level(optarg, &config->level) < 0)
                return usage_error("--log-level: not error, warning, info or debug: ",
                                   optarg);
            break;
        case 'V': printf("ctrund %s\n", ctrun_version()); return end_output();
        case 'h': print_help(); return end_output();
        case ':': return usage_error("a value is missing after ", argv[optind - 1]);
        default: return unknown_option(argv[optind - 1]);
        }
    }
    if (optind < argc)
        return usage_error("unknown argument ", argv[optind]);
    if (config->port_listen[0] && config->listen_count > 0)
        return usage_error(
            "--port is the same as --listen :PORT: give one of them, not "
            "also --port ",
            config->port_listen + 1);
    if (config->port_listen[0])
        config->listen[config->listen_count++] = config->port_listen;
    return -1;
}

/* Does not wait for a reader: nodes live as long as they hear from the server. */
static void print_log(void *context, enum ctrun_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    static unsigned lost;
    struct pollfd ask = {.fd = STDERR_FILENO, .events = POLLOUT};

    (void)context;
    if (poll(&ask, 1, 0) <= 0) {
        lost++;
        return;
    }
    if (lost > 0)
        fprintf(stderr,
                "ctrund: warning: nobody has read standard error: %u lines are lost\n",
                lost);
    lost = 0;
    fprintf(stderr, "ctrund: %s: %s\n", names[level], line);
}

static bool has_secret(const struct config *config)
{
    return config->uses_munge || config->token.length > 0;
}

/* A numeric address is bound as it is. A name may be loopback on this machine (Debian's 127.0.1.1)
 * and another address on other machines: then all addresses are bound. Without an address, other
 * machines are accepted only if agents must prove a secret. */
static int choose_address(struct ct_addr *out, const struct config *config,
                          const struct ct_endpoint *endpoint, struct ctrun_error *err)
{
    struct ct_addr found[CT_ADDRS_MAX];
    int count;

    if (!endpoint->host[0])
        return ct_addr_parse(has_secret(config) ? "::" : "127.0.0.1", endpoint->port,
                             out);
    if (ct_addr_is_localhost(endpoint->host))
        return ct_addr_parse("127.0.0.1", endpoint->port, out);
    if (ct_addr_parse(endpoint->host, endpoint->port, out) == 0)
        return 0;
    count = ct_addr_resolve(endpoint->host, endpoint->port, found, CT_ADDRS_MAX, err);
    if (count < 0)
        return count;
    for (int i = 0; i < count; i++) {
        if (ct_nic_is_mine(&found[i]))
            return ct_addr_parse("::", endpoint->port, out);
    }
    return ct_fail(err, CTRUN_E_USAGE,
                   "--listen %s: that name is not an address of this machine",
                   endpoint->host);
}

static int listen_at(const struct config *config, const char *text,
                     struct ctrun_error *err)
{
    struct ct_endpoint endpoint;
    struct ct_addr addr;
    char shown[CT_ADDR_TEXT_MAX];
    uint16_t port;
    int rc;

    if (ct_endpoint_parse_typed(text, &endpoint, err) < 0)
        return err->code = CTRUN_E_USAGE;
    if (endpoint.port < 0)
        endpoint.port = CT_C10D_PORT;
    rc = choose_address(&addr, config, &endpoint, err);
    if (rc < 0 || (rc = server_listen(server, &addr, &port, err)) < 0)
        return rc;
    ct_addr_set_port(&addr, port);
    ct_addr_format(shown, &addr);
    printf("listening on %s\n", shown);
    fflush(stdout);
    if (!has_secret(config) && !endpoint.host[0])
        ct_warn("no token: listening on loopback only; --token-file or --munge opens "
                "the port to other machines");
    else if (!has_secret(config) && !ct_addr_is_loopback(&addr))
        ct_warn(
            "no token: every program that reaches %s can take part in every run and "
            "end it; --token-file or --munge accepts only those that prove a secret",
            shown);
    return 0;
}

/* The file wins; CTRUN_TOKEN leaves the environment in any case. */
static int resolve_token(struct config *config, struct ctrun_error *err)
{
    int rc = ct_auth_token_take_env(&config->token, err);

    if (rc >= 0 && config->token_file) {
        rc = ct_auth_token_read(&config->token, config->token_file, err);
        if (rc < 0)
            return ct_wrap(err, "--token-file"), rc;
    }
    if (rc >= 0 && config->uses_munge) {
        if (config->token.length > 0)
            return ct_fail(err, CTRUN_E_USAGE, "--munge and a token: give one of them");
        if (!ct_munge_is_usable(err))
            return err->code = CTRUN_E_USAGE;
    }
    if (rc >= 0 && config->wants_seal && !config->uses_munge &&
        config->token.length == 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--encrypt: encryption without a secret protects nothing; give "
                       "--token-file, CTRUN_TOKEN or --munge");
    return rc < 0 ? rc : 0;
}

static void notify_manager(const char *state)
{
    int rc = notify_send(state);

    if (rc < 0)
        ct_warn("the service manager could not be notified: %s", strerror(-rc));
}

/* A connection is a descriptor. */
static void raise_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* up to the hard limit */
}

static void print_limit(void)
{
    size_t reserve;
    const size_t max = server_conns_max(server, &reserve);

    ct_info("at most %zu connections, %zu of them for short requests; "
            "--max-connections and ulimit -Hn set this limit",
            max, reserve);
}

static int listen_and_run(const struct config *config, struct ctrun_error *err)
{
    struct sigaction action = {.sa_handler = on_signal};
    int rc = 0;

    /* Set before the first port is open: after "listening on" a signal must stop the server in
     * order. */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigprocmask(SIG_SETMASK, &action.sa_mask,
                NULL); /* the parent process may have blocked them */
    for (size_t i = 0; i < config->listen_count && rc == 0; i++)
        rc = listen_at(config, config->listen[i], err);
    if (rc == 0) {
        print_limit();
        notify_manager("READY=1"); /* it listens: connections are accepted */
        rc = server_run(server, err);
    }
    action.sa_handler = SIG_IGN; /* the server is stopping already */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    notify_manager("STOPPING=1");
    return rc;
}

static int serve(const struct config *config, struct ctrun_error *err)
{
    struct journal_file *file = NULL;
    struct journal_book book;
    struct server_options options = {.token = &config->token,
                                     .uses_munge = config->uses_munge,
                                     .wants_seal = config->wants_seal,
                                     .ports = config->ports,
                                     .conns_max = (size_t)config->conns_max,
                                     .book = &book};
    int rc = 0;

    journal_book_init(&book);
    if (config->journal)
        rc = journal_file_open(&file, config->journal, &book, ct_now_ms(), err);
    if (file)
        options.journal = journal_file_sink(file);
    if (rc < 0)
        ct_wrap(err, "--journal");
    else if ((rc = server_create(&server, &options, err)) == 0)
        rc = listen_and_run(config, err);
    /* Destroy the server first: it borrows the book, and writes to the sink until the end. */
    server_destroy(server);
    journal_book_deinit(&book);
    journal_file_close(file);
    return rc;
}

static int exit_code(int rc)
{
    switch (rc) {
    case 0: return CT_EXIT_OK;
    case CTRUN_E_USAGE: return CT_EXIT_USAGE;
    case -EBUSY: /* the journal */
    case CTRUN_E_PORT_BUSY: return CT_EXIT_REFUSED;
    default: return CT_EXIT_FAILURE;
    }
}

static int run_daemon(struct config *config, int argc, char **argv)
{
    const char *events = getenv(CT_ENV_EVENTS);
    struct ctrun_error err = {0};
    int rc = parse(argc, argv, config);

    if (rc >= 0)
        return rc;
    ct_log_set_sink(print_log, NULL, config->level);
    if (events && *events && (rc = ct_event_open(events)) < 0) {
        fprintf(stderr, "ctrund: error[%s]: %s=%s: %s\n", ct_error_name(rc),
                CT_ENV_EVENTS, events, strerror(-rc));
        return CT_EXIT_FAILURE;
    }
    raise_files();
    signal(SIGXFSZ, SIG_IGN); /* a full journal: write() fails with EFBIG */
    signal(SIGPIPE, SIG_IGN); /* a closed connection is an error code of write() */
    if ((rc = resolve_token(config, &err)) == 0) {
        if (config->listen_count == 0)
            config->listen[config->listen_count++] = ":29400";
        rc = serve(config, &err);
    }
    if (rc < 0)
        fprintf(stderr, "ctrund: error[%s]: %s\n", ct_error_name(rc), err.text);
    ct_event_close();
    return exit_code(rc);
}

int main_ctrund(int argc, char **argv)
{
    /* It holds the token, which must not get into a core file. */
    struct config *config = ct_secret_zalloc(sizeof *config);
    int code;

    ct_std_streams_fill();
    signal(SIGPIPE, SIG_DFL); /* end silently if nobody reads the output of --help */
    if (!config) {
        fprintf(stderr, "ctrund: error[%s]: out of memory\n", ct_error_name(-ENOMEM));
        return CT_EXIT_FAILURE;
    }
    config->level = CTRUN_LOG_INFO;
    code = run_daemon(config, argc, argv);
    ct_secret_free(config);
    return code;
}
