/* SPDX-License-Identifier: Apache-2.0 */
/* Every option of ctrun. Those that torchrun does not have say so in their help. */
#include "launcher/options/option_table.h"

const char *const option_group_titles[OPTION_GROUP_COUNT] = {
    [OPTION_GROUP_SIZE] = "Size of the job",
    [OPTION_GROUP_PROGRAM] = "What to run",
    [OPTION_GROUP_MEET] = "How nodes meet",
    [OPTION_GROUP_FAILURE] = "Failures, signals, exit code",
    [OPTION_GROUP_OUTPUT] = "Output and log files",
    [OPTION_GROUP_DEVICE] = "Devices",
    [OPTION_GROUP_LAUNCHER] = "The launcher itself",
};

#define FLAG(NAME, GROUP, HELP)                                                        \
    .name = NAME, .kind = OPTION_KIND_FLAG, .group = OPTION_GROUP_##GROUP, .help = HELP
#define OWN_FLAG(NAME, GROUP, HELP) .is_own = true, FLAG(NAME, GROUP, "ctrun: " HELP)
#define OWN_TAKES(KIND, NAME, GROUP, VALUE, HELP)                                      \
    .is_own = true, TAKES(KIND, NAME, GROUP, VALUE, "ctrun: " HELP)
#define TAKES(KIND, NAME, GROUP, VALUE, HELP)                                          \
    .name = NAME, .kind = OPTION_KIND_##KIND, .group = OPTION_GROUP_##GROUP,           \
    .value = VALUE, .help = HELP

const struct option option_table[OPTION_COUNT] = {
    [OPTION_NNODES] = {TAKES(TEXT, "nnodes", SIZE, "N|MIN:MAX",
                             "number of nodes, or a range of them"),
                       .env = "PET_NNODES", .fallback = "1:1"},
    [OPTION_NPROC_PER_NODE] = {TAKES(TEXT, "nproc-per-node", SIZE,
                                     "N|N,NxK,...|auto|cpu|gpu|xpu",
                                     "workers on this node, or of each node by a list:"
                                     " 8,2x3 is 8, 2, 2, 2"),
                               .env = "PET_NPROC_PER_NODE", .fallback = "1"},

    [OPTION_NODE_UNIT] =
        {OWN_TAKES(
             INT, "node-unit", SIZE, "N",
             "worlds have a multiple of this number of nodes; the rest wait as spares"),
         .env = "CTRUN_NODE_UNIT", .fallback = "1"},
    [OPTION_MODULE] = {FLAG("module", PROGRAM, "run PROGRAM as python -m PROGRAM"),
                       .letter = 'm', .env = "PET_MODULE"},
    [OPTION_NO_PYTHON] = {FLAG("no-python", PROGRAM, "execute PROGRAM directly"),
                          .env = "PET_NO_PYTHON"},
    [OPTION_USE_ENV] =
        {FLAG("use-env", PROGRAM,
              "ctrun-launch only: no --local-rank=N in front of PROGRAM's arguments"),
         .is_launch_only = true},
    [OPTION_RUN_PATH] = {FLAG("run-path", PROGRAM,
                              "run PROGRAM through Python's runpy"),
                         .env = "PET_RUN_PATH"},
    [OPTION_START_METHOD] = {TAKES(TEXT, "start-method", PROGRAM, "METHOD",
                                   "no effect: workers are started by exec"),
                             .env = "PET_START_METHOD", .fallback = "spawn",
                             .choices = "spawn fork forkserver"},
    [OPTION_WARM] = {OWN_TAKES(
                         TEXT, "warm", PROGRAM, "=MODULE,...",
                         "one process of a node imports these, torch if none is named,"
                         " and workers are forked from it; by exec where that"
                         " cannot be; auto in the list: and what they had"
                         " imported at their first step"),
                     .alone = "torch", .env = "CTRUN_WARM"},

    [OPTION_JAX] =
        {OWN_FLAG("jax", PROGRAM,
                  "jax.distributed.initialize() without arguments finds its place:"
                  " JAX_COORDINATOR_ADDRESS and each worker's own SLURM_ variables; on"
                  " every node"),
         .env = "CTRUN_JAX"},

    [OPTION_STANDALONE] = {FLAG("standalone", MEET,
                                "one node, free port, new run id; other options of the "
                                "rendezvous are ignored"),
                           .env = "PET_STANDALONE"},
    [OPTION_RDZV_BACKEND] =
        {TAKES(TEXT, "rdzv-backend", MEET, "NAME",
               "c10d, static or etcd; default: c10d with an endpoint for several"
               " nodes and for one node without, else static"),
         .env = "PET_RDZV_BACKEND"},
    [OPTION_RDZV_ENDPOINT] = {TAKES(TEXT, "rdzv-endpoint", MEET, "HOST[:PORT]",
                                    "where the nodes meet; c10d's port is 29400; etcd's"
                                    " members: HOST:2379,..."),
                              .env = "PET_RDZV_ENDPOINT", .fallback = ""},
    [OPTION_RDZV_ID] = {TAKES(TEXT, "rdzv-id", MEET, "ID",
                              "run id, equal on all nodes"),
                        .env = "PET_RDZV_ID", .fallback = "none"},
    [OPTION_RDZV_CONF] = {TAKES(
                              TEXT, "rdzv-conf", MEET, "KEY=VALUE,...",
                              "join_timeout, last_call_timeout, keep_alive_interval,"
                              " keep_alive_max_attempt, read_timeout, is_host, timeout;"
                              " etcd: protocol, cacert, cert, key, user, password_file,"
                              " etcd_prefix, lease_ttl"),
                          .env = "PET_RDZV_CONF", .fallback = ""},
    [OPTION_RDZV_TOKEN_FILE] = {OWN_TAKES(TEXT, "rdzv-token-file", MEET, "FILE",
                                          "secret that all nodes prove to each"
                                          " other; also CTRUN_TOKEN=SECRET"),
                                .env = "CTRUN_RDZV_TOKEN_FILE"},
    [OPTION_BOOTSTRAP] =
        {OWN_TAKES(TEXT, "bootstrap", MEET, "WAY",
                   "how tasks of srun find the rendezvous: pmi: through srun's PMI; "
                   "port: at a port derived from the job; auto: pmi if srun has one "
                   "and a task is not a rank"),
         .env = "CTRUN_BOOTSTRAP", .fallback = "auto", .choices = "auto pmi port"},
    [OPTION_HOSTS] = {OWN_TAKES(TEXT, "hosts", MEET, "HOST,...",
                                "start the nodes on these hosts by ssh: a,b or"
                                " n[1-3]; the first serves"),
                      .env = "CTRUN_HOSTS"},
    [OPTION_HOSTS_FILE] = {OWN_TAKES(
                               TEXT,
                               "hosts-file", MEET, "FILE",
                               "the hosts of --hosts from a file; # begins a comment"),
                           .env = "CTRUN_HOSTS_FILE"},
    [OPTION_HOSTS_ENV] = {OWN_TAKES(TEXT, "hosts-env", MEET, "NAME,PREFIX*,...",
                                    "variables to send to all hosts, beside those of"
                                    " the launcher and the libraries"),
                          .env = "CTRUN_HOSTS_ENV", .fallback = ""},
    [OPTION_HOSTS_TIMEOUT] = {OWN_TAKES(INT, "hosts-timeout", MEET, "SECONDS",
                                        "time that a host has to answer over ssh"),
                              .env = "CTRUN_HOSTS_TIMEOUT", .fallback = "30"},
    [OPTION_SSH] = {OWN_TAKES(TEXT, "ssh", MEET, "COMMAND",
                              "run this command of sh instead of ssh; host and"
                              " command are appended"),
                    .env = "CTRUN_SSH", .fallback = ""},
    [OPTION_STAGE] = {OWN_TAKES(TEXT, "stage", MEET, "PATH,...",
                                "with --hosts: copy these files and folders to a"
                                " local disk of every host before the run; PROGRAM runs"
                                " from there"),
                      .env = "CTRUN_STAGE"},
    [OPTION_STAGE_DIR] = {OWN_TAKES(
                              TEXT,
                              "stage-dir", MEET, "DIR",
                              "where to copy them; default: TMPDIR of the host, else"
                              " /tmp"),
                          .env = "CTRUN_STAGE_BASE"},
    [OPTION_STAGE_REMOVE] = {OWN_FLAG("stage-remove", MEET,
                                      "remove the copies at the end of the run;"
                                      " else the next one uses them"),
                             .env = "CTRUN_STAGE_REMOVE"},
    [OPTION_AUTH] = {OWN_TAKES(TEXT, "auth", MEET, "HOW",
                               "how nodes prove that they belong together: auto takes"
                               " the token, without one MUNGE under Slurm"),
                     .env = "CTRUN_AUTH", .fallback = "auto",
                     .choices = "auto token munge none"},
    [OPTION_ENCRYPT] = {OWN_FLAG("encrypt", MEET,
                                 "encrypt the links between nodes and rendezvous;"
                                 " on every node"),
                        .env = "CTRUN_ENCRYPT"},
    [OPTION_HA] =
        {OWN_TAKES(TEXT, "ha", MEET, "=3|5",
                   "the first 3 or 5 nodes run an etcd of the run's own,"
                   " and the run survives the loss of the rendezvous' node; on"
                   " every node"),
         .alone = "3", .env = "CTRUN_HA"},
    [OPTION_LOCAL_ADDR] = {TAKES(TEXT, "local-addr", MEET, "ADDR",
                                 "address of this node that the others use"),
                           .env = "PET_LOCAL_ADDR"},
    [OPTION_NET] = {OWN_TAKES(TEXT, "net", MEET, "IFACE|CIDR,...",
                              "interface or network of the addresses that nodes and"
                              " workers use; default: the route to the rendezvous"),
                    .env = "CTRUN_NET", .fallback = ""},
    [OPTION_PORT_RANGE] = {OWN_TAKES(TEXT, "port-range", MEET, "A-B",
                                     "ports for every listener that may choose one"),
                           .env = "CTRUN_PORT_RANGE", .fallback = ""},
    [OPTION_STORE_ACCESS] = {OWN_TAKES(TEXT, "store-access", MEET, "WHO",
                                       "who may connect to the workers' store: the"
                                       " nodes of the run (members), or any"),
                             .env = "CTRUN_STORE_ACCESS", .fallback = "members",
                             .choices = "members any"},
    [OPTION_NODE_RANK] = {TAKES(INT, "node-rank", MEET, "N",
                                "rank of this node (static)"),
                          .env = "PET_NODE_RANK", .fallback = "0"},
    [OPTION_MASTER_ADDR] = {TAKES(TEXT, "master-addr", MEET, "HOST",
                                  "host of node rank 0 (static)"),
                            .env = "PET_MASTER_ADDR", .fallback = "127.0.0.1"},
    [OPTION_MASTER_PORT] = {TAKES(INT, "master-port", MEET, "PORT",
                                  "port of node rank 0 (static); several nodes: 29500"),
                            .env = "PET_MASTER_PORT"},
    [OPTION_ROLE] = {TAKES(TEXT, "role", MEET, "NAME|NAME=N:COMMAND",
                           "role of this node's workers; the second form, repeated:"
                           " several programs in one job, in place of PROGRAM"),
                     .env = "PET_ROLE", .fallback = "default"},

    [OPTION_MAX_RESTARTS] = {TAKES(INT, "max-restarts", FAILURE, "N",
                                   "restarts of the whole job after a failure"),
                             .env = "PET_MAX_RESTARTS", .fallback = "0"},
    [OPTION_ROLE_RESTARTS] =
        {OWN_TAKES(TEXT, "role-restarts", FAILURE, "NAME=N,...",
                   "a worker of this --role that fails is started again alone, N"
                   " times on a node in a round; may be repeated"),
         .env = "CTRUN_ROLE_RESTARTS"},
    [OPTION_MIN_UPTIME] =
        {OWN_TAKES(INT, "min-uptime", FAILURE, "SECONDS",
                   "two equal failures within this time of the start"
                   " end the job, if it has more than 3 restarts; 0: restart"
                   " as torchrun does"),
         .env = "CTRUN_MIN_UPTIME", .fallback = "30"},
    [OPTION_HANG_TIMEOUT] =
        {OWN_TAKES(INT, "hang-timeout", FAILURE, "SECONDS",
                   "a rank that makes no step for so long, or that others wait for in a"
                   " collective, counts as failed; 0: off"),
         .env = "CTRUN_HANG_TIMEOUT", .fallback = "0"},
    [OPTION_STRAGGLERS] = {OWN_FLAG(
                               "stragglers", FAILURE,
                               "name the rank of a node, and the node, that the"
                               " others wait for in collectives, in ctrunctl status,"
                               " events and metrics"),
                           .env = "CTRUN_STRAGGLERS"},
    [OPTION_RESTART_DELAY] =
        {OWN_TAKES(TEXT, "restart-delay", FAILURE, "SECONDS[,MAX]",
                   "wait between a failure and the restart; doubles up to MAX with each"
                   " failure without progress in between, less a random part; default"
                   " MAX: 300"),
         .env = "CTRUN_RESTART_DELAY", .fallback = "0"},
    [OPTION_GPU_WAIT] =
        {OWN_TAKES(
             INT,
             "gpu-wait", FAILURE, "SECONDS",
             "before a restart, wait at most so long until the GPUs of this node hold"
             " no more than before the first start; 0: do not look"),
         .env = "CTRUN_GPU_WAIT", .fallback = "10"},
    [OPTION_EXCLUDE_AFTER] =
        {OWN_TAKES(
             INT,
             "exclude-node-after", FAILURE, "K",
             "a node is excluded after K failures with evidence of broken hardware"
             " (Xid, ECC, InfiniBand port), if enough others are left; 0: never"),
         .env = "CTRUN_EXCLUDE_NODE_AFTER", .fallback = "2"},
    [OPTION_BUDGET] =
        {OWN_TAKES(FLOAT, "budget", FAILURE, "SECONDS",
                   "a restart that takes longer, from the failure to the first step, "
                   "is reported, and a run that succeeds ends with 78; 0: off"),
         .env = "CTRUN_BUDGET", .fallback = "0"},
    [OPTION_FAILURE_RULES] =
        {OWN_TAKES(TEXT, "failure-rules", FAILURE, "FILE",
                   "file with your own failure messages, their meaning and remedy, "
                   "used before the built-in ones; on every node"),
         .env = "CTRUN_FAILURE_RULES"},
    [OPTION_MONITOR_INTERVAL] = {TAKES(
                                     FLOAT, "monitor-interval", FAILURE, "SECONDS",
                                     "no effect: the end of a worker is seen at once"),
                                 .env = "PET_MONITOR_INTERVAL", .fallback = "0.1"},
    [OPTION_SIGNALS_TO_HANDLE] = {TAKES(
                                      TEXT, "signals-to-handle", FAILURE, "NAME,...",
                                      "signals that end the job and reach its workers"),
                                  .env = "PET_SIGNALS_TO_HANDLE",
                                  .fallback = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
    [OPTION_SHUTDOWN_TIMEOUT] = {TAKES(INT, "shutdown-timeout", FAILURE, "SECONDS",
                                       "grace between a signal and SIGKILL; default:"
                                       " TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30"),
                                 .env = "PET_SHUTDOWN_TIMEOUT"},
    [OPTION_SURVIVOR_GRACE] =
        {OWN_TAKES(INT, "survivor-grace", FAILURE, "SECONDS",
                   "when a rank is lost, ranks that wait for it in a collective get"
                   " an error and have so long to save before they are stopped"),
         .env = "CTRUN_SURVIVOR_GRACE", .fallback = "0"},
    [OPTION_SURVIVE] =
        {OWN_TAKES(TEXT, "survive", FAILURE, "WHO",
                   "when a rank is lost: stop all others, or let all continue in their "
                   "processes, by ctrun_group_shrink() of the worker SDK (sdk) or by "
                   "ctrun.elastic in a PyTorch script (torch)"),
         .env = "CTRUN_SURVIVE", .fallback = "none", .choices = "none sdk torch"},
    [OPTION_SURVIVE_TIMEOUT] =
        {OWN_TAKES(INT, "survive-timeout", FAILURE, "SECONDS",
                   "time that the others have to continue after a loss; then all are"
                   " started again, as without --survive"),
         .env = "CTRUN_SURVIVE_TIMEOUT", .fallback = "30"},
    [OPTION_SURVIVE_REPLACE] =
        {OWN_TAKES(INT, "survive-replace", FAILURE, "N",
                   "with --survive: this number of lost ranks of each node are started "
                   "again and join the others at a step; another node takes the place "
                   "of a lost one"),
         .env = "CTRUN_SURVIVE_REPLACE", .fallback = "0"},
    [OPTION_EXIT_CODE] = {OWN_TAKES(TEXT, "exit-code", FAILURE, "STYLE",
                                    "own: the code of the root cause; torchrun: 1"
                                    " for every failure; class: the kind of failure"),
                          .env = "CTRUN_EXIT_CODE", .fallback = "own",
                          .choices = "own torchrun class"},

    [OPTION_SIGNAL_SCOPE] =
        {OWN_TAKES(TEXT, "signal-scope", FAILURE, "SCOPE",
                   "a SIGUSR1 or SIGUSR2 reaches the workers of the whole job,"
                   " or only those of this node"),
         .env = "CTRUN_SIGNAL_SCOPE", .fallback = "job", .choices = "job node"},
    [OPTION_ALLOW_CHAOS] = {OWN_FLAG("allow-chaos", FAILURE,
                                     "ctrunctl chaos may inject faults into this run;"
                                     " on every node"),
                            .env = "CTRUN_ALLOW_CHAOS"},
    [OPTION_REQUEUE_EXIT] =
        {OWN_TAKES(INT, "requeue-exit", FAILURE, "CODE",
                   "exit code when a signal ends the run and all workers of this"
                   " node end with 0: they have saved, queue the job again"),
         .env = "CTRUN_REQUEUE_EXIT"},
    [OPTION_STOP_BEFORE_END] =
        {OWN_TAKES(TEXT, "stop-before-end", FAILURE, "SECONDS[,SIGNAL]",
                   "end the run so long before the end of the allocation, known from"
                   " Slurm or CTRUN_END_TIME; or only pass on SIGUSR1 or SIGUSR2"),
         .env = "CTRUN_STOP_BEFORE_END"},

    [OPTION_LOG_DIR] = {TAKES(TEXT, "log-dir", OUTPUT, "DIR",
                              "base of the log files; default: a new one in TMPDIR"),
                        .env = "PET_LOG_DIR"},
    [OPTION_REDIRECTS] = {TAKES(TEXT, "redirects", OUTPUT, "N|RANK:N,...",
                                "to files: 0 nothing, 1 stdout, 2 stderr, 3 both"),
                          .letter = 'r', .env = "PET_REDIRECTS", .fallback = "0"},
    [OPTION_TEE] = {TAKES(
                        TEXT, "tee", OUTPUT, "N|RANK:N,...",
                        "to files and, with a prefix, to the console; as --redirects"),
                    .letter = 't', .env = "PET_TEE", .fallback = "0"},
    [OPTION_LOG_LINE_PREFIX_TEMPLATE] =
        {TAKES(TEXT, "log-line-prefix-template", OUTPUT, "TEXT",
               "prefix of teed lines; ${role_name} ${rank} ${local_rank} ${hostname}; "
               "default:"
               " TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else "
               "[${role_name}${local_rank}]:"),
         .env = "PET_LOG_LINE_PREFIX_TEMPLATE", .fallback = ""},
    [OPTION_LOCAL_RANKS_FILTER] = {TAKES(TEXT, "local-ranks-filter", OUTPUT, "RANK,...",
                                         "only these local ranks reach the console"),
                                   .env = "PET_LOCAL_RANKS_FILTER", .fallback = ""},
    [OPTION_DUPLICATE_STDOUT_FILTERS] =
        {TAKES(TEXT, "duplicate-stdout-filters", OUTPUT, "TEXT,...",
               "teed lines with one of these also go to filtered_stdout.log"),
         .env = "PET_DUPLICATE_STDOUT_FILTERS", .fallback = ""},
    [OPTION_DUPLICATE_STDERR_FILTERS] =
        {TAKES(TEXT, "duplicate-stderr-filters", OUTPUT, "TEXT,...",
               "teed lines with one of these also go to filtered_stderr.log"),
         .env = "PET_DUPLICATE_STDERR_FILTERS", .fallback = ""},
    [OPTION_COLLAPSE] = {OWN_FLAG("collapse", OUTPUT,
                                  "a line that several workers write alike is shown"
                                  " once, as [0-7] text"),
                         .env = "CTRUN_COLLAPSE"},
    [OPTION_STDIN] = {OWN_TAKES(TEXT, "stdin", OUTPUT, "RANK|all|none",
                                "which rank reads standard input, terminal or pipe;"
                                " all others read /dev/null"),
                      .env = "CTRUN_STDIN", .fallback = "all"},
    [OPTION_COLOR] = {OWN_TAKES(TEXT, "color", OUTPUT, "WHEN",
                                "prefix of --tee in a different colour for each rank; "
                                "auto: on a terminal"),
                      .env = "CTRUN_COLOR", .fallback = "auto",
                      .choices = "auto always never"},
    [OPTION_LOG_MAX_SIZE] = {OWN_TAKES(TEXT, "log-max-size", OUTPUT, "SIZE",
                                       "a log file of this size (500K, 100M, 2G) is"
                                       " renamed to stdout.log.1 and a new one begun"),
                             .env = "CTRUN_LOG_MAX_SIZE"},
    [OPTION_LOG_KEEP] = {OWN_TAKES(INT, "log-keep", OUTPUT, "N",
                                   "renamed files that are kept of each log file;"
                                   " default 3"),
                         .env = "CTRUN_LOG_KEEP"},
    [OPTION_LOG_RATE_LIMIT] =
        {OWN_TAKES(TEXT, "log-rate-limit", OUTPUT, "SIZE",
                   "what one worker may show on the console in a second (500K, 2M);"
                   " lines beyond it are only in files, and counted"),
         .env = "CTRUN_LOG_RATE_LIMIT"},
    [OPTION_SUMMARY] =
        {OWN_TAKES(TEXT, "summary", OUTPUT, "FORM",
                   "what is printed about a failure: the cause "
                   "(short), and torchrun's table with all ranks "
                   "(torchrun); auto: the cause on a terminal, else with a "
                   "table in which ranks that ctrun stopped are one line"),
         .env = "CTRUN_SUMMARY", .fallback = "auto", .choices = "auto short torchrun"},
    [OPTION_PTY] = {OWN_TAKES(
                        TEXT,
                        "pty", OUTPUT, "WHEN",
                        "where ctrun's stdout or stderr is a terminal, the"
                        " workers' is one too, for progress bars and colours: auto"
                        " or never"),
                    .env = "CTRUN_PTY", .fallback = "auto", .choices = "auto never"},
    [OPTION_REDACT] = {OWN_TAKES(TEXT, "redact", OUTPUT, "on|off",
                                 "replace passwords, tokens and keys by *** in what"
                                 " a failure report quotes of a worker"),
                       .env = "CTRUN_REDACT", .fallback = "on", .choices = "on off"},
    [OPTION_LOGS_SPECS] = {TAKES(
        TEXT, "logs-specs", OUTPUT, "NAME",
        "default: no effect; others are refused, they are Python plug-ins")},
    [OPTION_EVENT_LOG_HANDLER] =
        {TAKES(TEXT, "event-log-handler", OUTPUT, "NAME",
               "null, or console: torchrun's events as JSON lines on stderr"),
         .env = "PET_EVENT_LOG_HANDLER", .fallback = "null"},

    [OPTION_VIRTUAL_LOCAL_RANK] = {FLAG("virtual-local-rank", DEVICE,
                                        "each worker sees LOCAL_RANK=0 and one GPU"),
                                   .env = "PET_VIRTUAL_LOCAL_RANK"},
    [OPTION_NUMA_BINDING] = {TAKES(TEXT, "numa-binding", DEVICE, "MODE",
                                   "bind each worker to the CPUs near its GPU"),
                             .choices = "node socket exclusive core-complex cores"},
    [OPTION_NIC_AFFINITY] = {OWN_FLAG("nic-affinity", DEVICE,
                                      "NCCL_IB_HCA of each worker: the InfiniBand or"
                                      " RoCE devices nearest to its GPU"),
                             .env = "CTRUN_NIC_AFFINITY"},
    [OPTION_OMP_THREADS] =
        {OWN_TAKES(TEXT, "omp-threads", DEVICE, "auto|torchrun|N",
                   "OMP_NUM_THREADS of several workers, unless it is set: auto is"
                   " the physical cores divided by the workers, torchrun is 1"),
         .env = "CTRUN_OMP_THREADS", .fallback = "auto"},
    [OPTION_OPEN_FILES] = {OWN_TAKES(TEXT, "open-files", DEVICE, "HOW",
                                     "workers' limit of open files: raise the soft"
                                     " one to the hard one, or keep it"),
                           .env = "CTRUN_OPEN_FILES", .fallback = "raise",
                           .choices = "raise keep"},
    [OPTION_CORE] = {OWN_FLAG("core", DEVICE,
                              "let workers dump core: raise their limit of core files"),
                     .env = "CTRUN_CORE"},

    [OPTION_QUIET] = {OWN_FLAG("quiet", LAUNCHER,
                               "of ctrun's own lines print only warnings and errors"),
                      .letter = 'q', .env = "CTRUN_QUIET"},
    [OPTION_VERBOSE] =
        {OWN_FLAG("verbose", LAUNCHER,
                  "print what was chosen and what happens, as LOGLEVEL=INFO does"),
         .letter = 'v', .env = "CTRUN_VERBOSE"},
    [OPTION_TIMESTAMPS] = {OWN_FLAG("timestamps", LAUNCHER,
                                    "begin ctrun's own lines with the time"),
                           .env = "CTRUN_TIMESTAMPS"},
    [OPTION_CONFIG] = {OWN_TAKES(TEXT, "config", LAUNCHER, "FILE",
                                 "take options from FILE: lines of name = value;"
                                 " environment and command line win"),
                       .env = "CTRUN_CONFIG"},
    [OPTION_DRY_RUN] = {OWN_FLAG("dry-run", LAUNCHER,
                                 "print the plan and start nothing"),
                        .env = "CTRUN_DRY_RUN"},
    [OPTION_PRINT_CONFIG] = {OWN_FLAG(
                                 "print-config", LAUNCHER,
                                 "print each setting and its source; start nothing"),
                             .env = "CTRUN_PRINT_CONFIG"},
    [OPTION_JSON] = {OWN_FLAG("json", LAUNCHER,
                              "--dry-run and --print-config print JSON"),
                     .env = "CTRUN_JSON"},
    [OPTION_PRINT_COMPLETION] = {TAKES(STOP, "print-completion", LAUNCHER, "SHELL",
                                       "print a completion script and exit"),
                                 .choices = "bash zsh tcsh fish"},
    [OPTION_VERSION] = {.name = "version",
                        .kind = OPTION_KIND_STOP,
                        .group = OPTION_GROUP_LAUNCHER,
                        .is_own = true,
                        .help = "ctrun: print the version and exit"},
    [OPTION_HELP] = {.name = "help",
                     .letter = 'h',
                     .kind = OPTION_KIND_STOP,
                     .group = OPTION_GROUP_LAUNCHER,
                     .help = "print this and exit"},
};
