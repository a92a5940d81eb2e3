/* SPDX-License-Identifier: Apache-2.0 */
/* Options and environment to configuration, and configuration to one worker's start. */
#include "tests/lib/test.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/run/plan.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    WORDS_MAX = 16,
    ENV_MAX = 16
};

/* The last command line that was resolved, and all that must stay valid after the call. */
static struct {
    char line[512];
    char *argv[WORDS_MAX];
    char *env[ENV_MAX];
    struct options options;
    struct config config;
    struct ctrun_error err;
    int rc;
    char log[4096];
} f;

static char path_env[] = "PATH=/usr/bin:/bin";

static void keep_line(void *context, enum ctrun_log_level level, const char *line)
{
    char *log = context;

    (void)snprintf(log + strlen(log), 4096 - strlen(log), "%s\n", line);
}

/* Resolves a command line; `env` ends with NULL; PATH is added. */
static void resolve(const char *line, char **env)
{
    int argc = 1;
    int count = 0;

    config_deinit(&f.config);
    memset(&f, 0, sizeof f);
    (void)snprintf(f.line, sizeof f.line, "%s", line);
    for (char *word = f.line; *word && argc < WORDS_MAX - 1;) {
        char *end = word + strcspn(word, " ");

        f.argv[argc++] = word;
        word = *end ? end + 1 : end;
        *end = '\0';
    }
    f.argv[0] = f.argv[1];
    f.env[count++] = path_env;
    for (; env && *env; env++)
        f.env[count++] = *env;
    ct_log_set_sink(keep_line, f.log, CTRUN_LOG_WARN);
    f.rc = options_parse(&f.options, argc, f.argv, f.env, &f.err);
    if (f.rc == 0)
        f.rc = config_resolve(&f.config, &f.options, f.env, &f.err);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
}

static int end(void **state)
{
    config_deinit(&f.config);
    return 0;
}

TEST(each_line_chooses_its_backend_and_endpoint)
{
    static const struct {
        const char *line;
        enum config_backend backend;
        const char *host;
        int port;
    } rows[] = {
        {"sh", CONFIG_LOCAL, "127.0.0.1", 0},
        {"--standalone --rdzv-backend=static --rdzv-endpoint=h:1 sh", CONFIG_LOCAL,
         "127.0.0.1", 0},
        {"--standalone --rdzv-backend=nosuch --rdzv-endpoint=h:x sh", CONFIG_LOCAL,
         "127.0.0.1", 0},
        {"--standalone --nnodes=1:4 sh", CONFIG_LOCAL, "127.0.0.1", 0},
        {"--rdzv-backend=static sh", CONFIG_LOCAL, "127.0.0.1", 0},
        {"--master-addr=h sh", CONFIG_LOCAL, "127.0.0.1", 0},
        {"--master-port=29555 sh", CONFIG_STATIC, "127.0.0.1", 29555},
        {"--nnodes=2 sh", CONFIG_STATIC, "127.0.0.1", 29500},
        {"--nnodes=2 --master-addr=h --master-port=5 sh", CONFIG_STATIC, "h", 5},
        {"--nnodes=2 --master-addr=[::1] sh", CONFIG_STATIC, "::1", 29500},
        {"--nnodes=2 --node-rank=1 --rdzv-endpoint=h:7 sh", CONFIG_STATIC, "h", 7},
        {"--rdzv-endpoint=h:7 sh", CONFIG_STATIC, "h", 7},
        {"--nnodes=2 --rdzv-endpoint=h sh", CONFIG_C10D, "h", 29400},
        {"--nnodes=1:2 --rdzv-endpoint=h:5 sh", CONFIG_C10D, "h", 5},
        {"--rdzv-backend=c10d sh", CONFIG_C10D, "localhost", 29400},
        {"--rdzv-backend=c10d --rdzv-endpoint=[::1]:1 sh", CONFIG_C10D, "::1", 1},
        {"--rdzv-backend=c10d --rdzv-endpoint=[::1] sh", CONFIG_C10D, "::1", 29400},
        {"--rdzv-backend=etcd --rdzv-endpoint=a,b:1 --rdzv-id=j sh", CONFIG_ETCD, "a",
         2379},
        {"--rdzv-backend=etcd-v2 --rdzv-endpoint=https://b:1 --rdzv-id=j sh",
         CONFIG_ETCD, "b", 1},
        {"--standalone --rdzv-backend=etcd sh", CONFIG_LOCAL, "127.0.0.1", 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        resolve(rows[i].line, NULL);
        if (f.rc != 0)
            fail_msg("%s: %s", rows[i].line, f.err.text);
        assert_int_equal(f.config.rdzv.backend, rows[i].backend);
        assert_string_equal(f.config.rdzv.endpoint.host, rows[i].host);
        assert_int_equal(f.config.rdzv.endpoint.port, rows[i].port);
    }
}

TEST(the_workers_of_all_roles_may_be_said_as_well)
{
    resolve("--nproc-per-node=3 --role=a=2:true --role=b=1:true", NULL);
    if (f.rc != 0)
        fail_msg("%s", f.err.text);
    assert_int_equal(f.config.run.nproc, 3);
    assert_int_equal(config_widest_role(&f.config), 2);
}

TEST(the_signal_before_the_end_has_its_name_with_and_without_sig)
{
    static const struct {
        const char *line;
        int signal;
    } rows[] = {{"--stop-before-end=5 sh", SIGTERM},
                {"--stop-before-end=5,SIGUSR1 sh", SIGUSR1},
                {"--stop-before-end=5,USR2 sh", SIGUSR2}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        resolve(rows[i].line, NULL);
        if (f.rc != 0)
            fail_msg("%s: %s", rows[i].line, f.err.text);
        assert_int_equal(f.config.stop.stop_before_end_s, 5);
        assert_int_equal(f.config.stop.end_signal, rows[i].signal);
    }
}

TEST(each_bad_line_is_refused_with_its_code)
{
    static const struct {
        const char *line;
        int code;
        const char *words;
    } rows[] = {
        {"--stdin=2 --nproc-per-node=2 sh", CTRUN_E_USAGE, "there are 2 ranks, 0 to 1"},
        {"--stdin=one sh", CTRUN_E_USAGE, "must be a rank of the job, all or none"},
        {"--nnodes=1:2:3 sh", -EINVAL, "is not in \"MIN:MAX\" format"},
        {"--nproc-per-node=0 sh", -EINVAL, "--nproc-per-node=0"},
        {"--max-restarts=-1 sh", -EINVAL, "max_restarts must be >= 0"},
        {"--monitor-interval=0 sh", -EINVAL, "--monitor-interval"},
        {"--nproc-per-node=unknown sh", -EINVAL, "Unsupported nproc_per_node value"},
        {"--local-ranks-filter=a sh", -EINVAL, "--local_ranks_filter must be"},
        {"--log-dir=/etc/passwd sh", -EINVAL, "/etc/passwd is a file"},
        {"--rdzv-backend=c10d --rdzv-conf=join_timeout=abc sh", -EINVAL,
         "join_timeout"},
        {"--rdzv-backend=c10d --rdzv-conf=cas_backoff_max_seconds=abc sh", -EINVAL,
         "cas_backoff_max_seconds('abc') is not a valid float value."},
        {"--rdzv-backend=c10d --rdzv-conf=cas_backoff_max_seconds=inf sh", -EINVAL,
         "must be finite and non-negative."},
        {"--rdzv-backend=nosuch sh", -EINVAL, "'nosuch' is not registered"},
        {"--rdzv-backend= sh", -EINVAL, "must be a non-empty string"},
        {"--rdzv-backend=etcd sh", CTRUN_E_USAGE, "--rdzv-id"},
        {"--rdzv-backend=etcd-v2 --rdzv-id=a/b sh", CTRUN_E_USAGE, "without slashes"},
        {"--rdzv-backend=c10d --rdzv-conf=store_type=file sh", CTRUN_E_USAGE,
         "store_type"},
        {"--logs-specs=x sh", CTRUN_E_USAGE, "--logs-specs"},
        {"--event-log-handler=scuba sh", CTRUN_E_USAGE, "CTRUN_EVENTS"},
        {"--no-python --module sh", -EINVAL, "Don't use both the '--no-python' flag"},
        {"--nnodes=2 --rdzv-endpoint=h --node-rank=0 sh", -EINVAL,
         "port is missing in endpoint"},
        {"--rdzv-backend=c10d --rdzv-endpoint=h:70000 sh", -EINVAL, "h:70000"},
        {"--nnodes=2 --node-rank=2 sh", -EINVAL, "--node-rank=2"},
        {"--nnodes=2 --master-port=70000 sh", -EINVAL, "--master-port=70000"},
        {"--standalone --nnodes=2 sh", -EINVAL, "--standalone is one node"},
        {"--port-range=9-1 sh", CTRUN_E_USAGE, "'9-1'"},
        {"--log-max-size=abc sh", CTRUN_E_USAGE, "--log-max-size=abc"},
        {"--log-rate-limit=5 sh", CTRUN_E_USAGE, "--log-rate-limit=5"},
        {"--log-rate-limit=2T sh", CTRUN_E_USAGE, "--log-rate-limit=2T"},
        {"--requeue-exit=256 sh", CTRUN_E_USAGE, "--requeue-exit=256"},
        {"--stop-before-end=x sh", CTRUN_E_USAGE, "--stop-before-end=x"},
        {"--stop-before-end=5, sh", CTRUN_E_USAGE, "the signal is SIGTERM"},
        {"--stop-before-end=5,HUP sh", CTRUN_E_USAGE, "--stop-before-end=5,HUP"},
        {"--stop-before-end=5xUSR1 sh", CTRUN_E_USAGE, "SECONDS,SIGNAL"},
        {"--stop-before-end=99999999999 sh", CTRUN_E_USAGE, "0 to 2592000"},
        {"--omp-threads=x sh", CTRUN_E_USAGE, "--omp-threads=x"},
        {"--shutdown-timeout=-1 sh", -EINVAL,
         "shutdown_timeout must be non-negative, got -1"},
        {"no-such-program-here", CTRUN_E_EXEC, "no such file in"},
        {"no/such/train.py", CTRUN_E_EXEC, "no such file"},
        {"--no-python no-such-program-here", CTRUN_E_EXEC, "in PATH"},
        {"-r4 sh", -EINVAL, "--redirects=4"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        resolve(rows[i].line, NULL);
        if (f.rc != rows[i].code || !strstr(f.err.text, rows[i].words))
            fail_msg("%s: %d %s", rows[i].line, f.rc, f.err.text);
    }
}

TEST(the_run_id_is_the_users_unless_standalone)
{
    resolve("--rdzv-id=J sh", NULL);
    assert_string_equal(f.config.run.run_id, "J"); /* torchrun replaces this id */
    resolve("--standalone --rdzv-id=J sh", NULL);
    assert_int_equal(strlen(f.config.run.run_id), 36);
    resolve("sh", NULL);
    assert_int_equal(strlen(f.config.run.run_id), 36);
    resolve("--nnodes=2 sh", NULL);
    assert_string_equal(f.config.run.run_id, "none");
}

TEST(times_come_from_rdzv_conf)
{
    resolve("--nnodes=1:2 --rdzv-endpoint=h "
            "--rdzv-conf=join_timeout=5,last_call_timeout=2,keep_alive_interval=1,"
            "keep_alive_max_attempt=2,timeout=77,nonsense=x,is_host=0 sh",
            NULL);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.rdzv.join_timeout_ms, 5000);
    assert_int_equal(f.config.rdzv.connect_timeout_ms, 5000);
    assert_int_equal(f.config.rdzv.last_call_ms, 2000);
    assert_int_equal(f.config.rdzv.lost_after_ms, 2000);
    assert_true(f.config.rdzv.heartbeat_ms < 1000);
    assert_int_equal(f.config.rdzv.is_host, CONFIG_HOST_NO);
    resolve("--nnodes=2 --rdzv-conf=timeout=77,join_timeout=5 sh", NULL);
    assert_int_equal(f.config.rdzv.join_timeout_ms, 77000);
    resolve("--nnodes=2 --rdzv-conf=join_timeout=5 sh", NULL);
    assert_int_equal(f.config.rdzv.join_timeout_ms, 5000);
    assert_int_equal(f.config.rdzv.lost_after_ms, 5000);
}

TEST(static_waits_for_all_nodes)
{
    resolve("--nnodes=1:3 --rdzv-backend=static --node-rank=2 sh", NULL);
    assert_int_equal(f.config.run.nodes.min, 3);
    assert_int_equal(f.config.run.node_rank, 2);
}

TEST(signals_are_read_by_name_and_unknown_ones_warned_about)
{
    resolve("--signals-to-handle=SIGTERM,SIGUSR1,SIGBOGUS,SIGCHLD sh", NULL);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.stop.signal_count, 2);
    assert_int_equal(f.config.stop.signals[1], SIGUSR1);
    assert_non_null(strstr(f.log, "'SIGBOGUS' is not the name of a signal"));
    assert_non_null(strstr(f.log, "'SIGCHLD' is how"));
}

TEST(a_signal_that_no_process_can_handle_is_refused)
{
    resolve("--signals-to-handle=SIGTERM,SIGKILL sh", NULL);
    assert_int_equal(f.rc, -EINVAL);
    assert_non_null(strstr(f.err.text, "no process can handle SIGKILL"));
    resolve("--signals-to-handle=SIGSTOP sh", NULL);
    assert_int_equal(f.rc, -EINVAL);
}

TEST(the_grace_time_has_three_sources)
{
    char five[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=5";
    char minus[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=-5";
    char word[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=x";

    resolve("sh", NULL);
    assert_int_equal(f.config.stop.grace_ms, 30000);
    resolve("sh", (char *[]){five, NULL});
    assert_int_equal(f.config.stop.grace_ms, 5000);
    resolve("--shutdown-timeout=0 sh", (char *[]){five, NULL});
    assert_int_equal(f.config.stop.grace_ms, 0);
    resolve("sh", (char *[]){minus, NULL});
    assert_int_equal(f.rc, -EINVAL);
    resolve("sh", (char *[]){word, NULL});
    assert_int_equal(f.rc, -EINVAL);
}

TEST(a_signal_leaves_the_time_that_slurm_gives)
{
    char job[] = "SLURM_JOB_ID=7";
    char path[] = "/tmp/config_test_XXXXXX";
    char conf[64];
    const int fd = mkstemp(path);

    assert_true(fd >= 0 && write(fd, "KillWait=100\n", 13) == 13);
    close(fd);
    (void)snprintf(conf, sizeof conf, "SLURM_CONF=%s", path);
    resolve("sh", (char *[]){job, conf, NULL});
    (void)unlink(path);
    assert_int_equal(f.config.stop.grace_ms, 30000);
    assert_int_equal(f.config.stop.signal_grace_ms, 90000); /* a tenth is ours */
}

TEST(node_rank_with_a_dynamic_backend_is_warned_about)
{
    resolve("--rdzv-backend=c10d --node-rank=1 sh", NULL);
    assert_int_equal(f.rc, 0);
    assert_non_null(strstr(f.log, "node_rank is only used for static rdzv_backend"));
}

TEST(filters_split_at_single_commas)
{
    resolve("--duplicate-stdout-filters=apple,a,,b,,,c sh", NULL);
    assert_string_equal(f.config.output.out_filters[0], "apple");
    assert_string_equal(f.config.output.out_filters[1], "a,b,");
    assert_string_equal(f.config.output.out_filters[2], "c");
    assert_null(f.config.output.out_filters[3]);
    assert_null(f.config.output.err_filters[0]);
}

TEST(the_worker_command_is_torchruns)
{
    char python[] = "PYTHON_EXEC=/bin/sh";
    static const struct {
        const char *line;
        const char *argv; /* joined by blanks */
        bool has_exec;
    } rows[] = {
        {"--no-python sh -c x$$y", "sh -c x$y", false},
        {"-m pkg.mod --a $local_rank", "python3 -u -m pkg.mod --a 1", false},
        {"-m pkg.mod", "/bin/sh -u -m pkg.mod", true},
        {"--no-python sh", "sh", true},
        {"sh -c ${local_rank}", "sh -c 1", false}, /* our addition: a program of PATH */
        {"train$local_rank.py ${foo}", "python3 -u train1.py ${foo}", false},
        {"/etc/passwd", "python3 -u /etc/passwd", false}, /* not an executable */
        {"/bin/sh", "/bin/sh", false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char joined[512] = "";
        char **argv;

        resolve(rows[i].line, rows[i].has_exec ? (char *[]){python, NULL} : NULL);
        if (f.rc != 0)
            fail_msg("%s: %s", rows[i].line, f.err.text);
        argv = plan_argv(&f.config, 1);
        assert_non_null(argv);
        for (char **word = argv; *word; word++) {
            size_t used = strlen(joined);

            (void)snprintf(joined + used, sizeof joined - used, "%s%s", used ? " " : "",
                           *word);
            free(*word);
        }
        free(argv);
        assert_string_equal(joined, rows[i].argv);
    }
}

static const struct ct_start start = {
    .generation = 5,
    .restart_count = 1,
    .group_rank = 1,
    .group_world_size = 3,
    .rank_base = 2,
    .world_size = 6,
    .role_rank_base = 0,
    .role_world_size = 3,
    .master_port = 4711,
    .master_addr = "10.0.0.1",
};

static void assert_env(const struct ct_env *env, const char *name, const char *value)
{
    const char *have = ct_env_get(env, name);

    if (!value ? have != NULL : !have || strcmp(have, value) != 0)
        fail_msg("%s is '%s', not '%s'", name, have ? have : "(unset)",
                 value ? value : "(unset)");
}

TEST(the_worker_environment_is_torchruns)
{
    static const char *const expected[][2] = {
        {"LOCAL_RANK", "2"},
        {"RANK", "4"},
        {"GROUP_RANK", "1"},
        {"ROLE_RANK", "2"},
        {"ROLE_NAME", "b"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"WORLD_SIZE", "6"},
        {"GROUP_WORLD_SIZE", "3"},
        {"ROLE_WORLD_SIZE", "3"},
        {"MASTER_ADDR", "10.0.0.1"},
        {"MASTER_PORT", "4711"},
        {"TORCHELASTIC_RESTART_COUNT", "1"},
        {"TORCHELASTIC_MAX_RESTARTS", "4"},
        {"TORCHELASTIC_RUN_ID", "J"},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
        {"TORCHELASTIC_ERROR_FILE", "/e"},
        {"OMP_NUM_THREADS", "1"},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
        {"PATH", "/usr/bin:/bin"},
        {"KEPT", "1"},
        {"CUDA_VISIBLE_DEVICES", NULL},
    };
    char kept[] = "KEPT=1";
    struct ct_env env = {0};

    resolve("--nproc-per-node=3 --role=b --rdzv-id=J --max-restarts=4 "
            "--omp-threads=torchrun sh",
            (char *[]){kept, NULL});
    assert_non_null(strstr(f.log, "Setting OMP_NUM_THREADS"));
    assert_int_equal(plan_environment(&env, &f.config, &start, 2, "/e"), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_env(&env, expected[i][0], expected[i][1]);
    ct_env_deinit(&env);
}

TEST(what_the_user_set_is_kept)
{
    char omp[] = "OMP_NUM_THREADS=7";
    char nccl[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING=3";
    char password[] = "CTRUN_ETCD_PASSWORD=secret";
    struct ct_env env = {0};

    resolve("--nproc-per-node=3 sh", (char *[]){omp, nccl, password, NULL});
    assert_string_equal(f.log, "");
    assert_int_equal(plan_environment(&env, &f.config, &start, 0, NULL), 0);
    assert_env(&env, "OMP_NUM_THREADS", "7");
    assert_env(&env, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
    assert_env(&env, "CTRUN_ETCD_PASSWORD", NULL); /* only for the launcher */
    assert_env(&env, "TORCHELASTIC_ERROR_FILE", "");
    ct_env_deinit(&env);
    resolve("sh", NULL); /* one worker: not set */
    assert_int_equal(plan_environment(&env, &f.config, &start, 0, NULL), 0);
    assert_env(&env, "OMP_NUM_THREADS", NULL);
    ct_env_deinit(&env);
}

TEST(lines_begin_with_role_and_local_rank)
{
    char *prefix;

    resolve("--role=trainer sh", NULL);
    prefix = plan_ranks_prefix(&f.config, "1", "5", true);
    assert_string_equal(prefix, "[trainer1]:");
    free(prefix);
    prefix = plan_ranks_prefix(&f.config, "1", "5", false);
    assert_string_equal(prefix, "[5] ");
    free(prefix);
}

TEST(omp_threads_come_from_the_switch)
{
    static const struct {
        const char *line;
        const char *expected;
    } rows[] = {
        {"--omp-threads=5 sh", "5"}, /* an explicit value counts for one worker, too */
        {"--omp-threads=5 --nproc-per-node=2 sh", "5"},
        {"--omp-threads=torchrun sh", NULL},
        {"--nproc-per-node=4000 sh", "1"}, /* auto: at least one */
    };
    struct ct_env env = {0};
    char setting[] = "CTRUN_OMP_THREADS=6";

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        resolve(rows[i].line, NULL);
        assert_int_equal(f.rc, 0);
        assert_int_equal(plan_environment(&env, &f.config, &start, 0, NULL), 0);
        assert_env(&env, "OMP_NUM_THREADS", rows[i].expected);
        ct_env_deinit(&env);
    }
    resolve("--nproc-per-node=2 sh", (char *[]){setting, NULL});
    assert_int_equal(f.config.work.placement.omp_threads, 6);
    resolve("--omp-threads=many sh", NULL);
    assert_int_equal(f.rc, CTRUN_E_USAGE);
    assert_non_null(strstr(f.err.text, "--omp-threads=many"));
}

TEST(cores_are_divided_among_workers)
{
    assert_int_equal(placement_omp_threads(16, 2), 8);
    assert_int_equal(placement_omp_threads(16, 5), 3);
    assert_int_equal(placement_omp_threads(2, 2), 1);
    assert_int_equal(placement_omp_threads(1, 8), 1);
    assert_int_equal(placement_omp_threads(0, 2), 1); /* unknown number of cores */
}

TEST(virtual_ranks_map_through_the_parents_list)
{
    char cuda[] = "CUDA_VISIBLE_DEVICES=4, 5";
    char hip[] = "HIP_VISIBLE_DEVICES=6,7";
    struct ct_env env = {0};

    resolve("--nproc-per-node=2 --virtual-local-rank sh", (char *[]){cuda, NULL});
    assert_int_equal(plan_environment(&env, &f.config, &start, 1, NULL), 0);
    assert_env(&env, "LOCAL_RANK", "0");
    assert_env(&env, "RANK", "3");
    assert_env(&env, "CUDA_VISIBLE_DEVICES", "5");
    ct_env_deinit(&env);
    resolve("--nproc-per-node=2 --virtual-local-rank sh", (char *[]){cuda, hip, NULL});
    assert_int_equal(plan_environment(&env, &f.config, &start, 0, NULL), 0);
    assert_env(&env, "HIP_VISIBLE_DEVICES", "6");
    assert_env(&env, "CUDA_VISIBLE_DEVICES", "6");
    ct_env_deinit(&env);
    resolve("--nproc-per-node=3 --virtual-local-rank sh", (char *[]){cuda, NULL});
    assert_int_equal(f.rc, CTRUN_E_RESOURCES);
    assert_non_null(
        strstr(f.err.text, "exceeds available GPUs in CUDA_VISIBLE_DEVICES"));
}

TEST(a_list_of_gpus_decides_nproc_gpu)
{
    char cuda[] = "CUDA_VISIBLE_DEVICES=0,2,5";

    resolve("--nproc-per-node=gpu sh", (char *[]){cuda, NULL});
    assert_int_equal(f.config.run.nproc, 3);
}

/* A batch script and the shell of salloc have the GPUs of their node, too, but no task of srun. */
TEST(only_a_step_of_srun_has_the_gpus_that_slurm_counts)
{
    char id[32] = "SLURM_STEP_ID=-6", gpus[32];
    int count;

    resolve("--standalone --nproc-per-node=auto true", NULL);
    assert_int_equal(f.rc, 0);
    count = f.config.run.nproc;
    (void)snprintf(gpus, sizeof gpus, "SLURM_GPUS_ON_NODE=%d", count + 1);
    resolve("--standalone --nproc-per-node=auto true", (char *[]){id, gpus, NULL});
    assert_int_equal(f.config.run.nproc, count);
    (void)snprintf(id, sizeof id, "SLURM_STEP_ID=6");
    resolve("--standalone --nproc-per-node=auto true", (char *[]){id, gpus, NULL});
    assert_int_equal(f.config.run.nproc, count + 1);
}

/* A step of `srun -N3 --ntasks-per-node=1`, seen from node2. */
static char *slurm_env[] = {
    (char[]){"SLURM_JOB_ID=17"},
    (char[]){"SLURM_STEP_ID=2"},
    (char[]){"SLURM_STEP_NODELIST=node[1-3]"},
    (char[]){"SLURM_STEP_TASKS_PER_NODE=1(x3)"},
    (char[]){"SLURM_NODEID=1"},
    (char[]){"SLURM_PROCID=1"},
    (char[]){"SLURM_LOCALID=0"},
    (char[]){"SLURM_STEP_NUM_TASKS=3"},
    NULL,
};

/* Names of nodes that the run waits for; how many tasks of each are agents, 0: the node is one. */
static void assert_expected(const char *names, int tasks)
{
    const struct run_config *run = &f.config.run;
    char found[128] = "";

    for (size_t i = 0; i < run->expected.count; i++) {
        (void)ct_append_item(found, sizeof found, ",", "%s", run->expected.names[i]);
        assert_int_equal(run->expected_tasks ? run->expected_tasks[i] : 0, tasks);
    }
    assert_string_equal(found, names);
}

TEST(slurm_says_who_where_and_in_which_order)
{
    int port;

    resolve("--nproc-per-node=4 true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.rdzv.backend, CONFIG_C10D);
    assert_int_equal(f.config.run.nodes.min, 3);
    assert_int_equal(f.config.run.nodes.max, 3);
    assert_int_equal(f.config.run.node_rank, 1);
    assert_int_equal(f.config.rdzv.is_host, CONFIG_HOST_NO);
    assert_string_equal(f.config.rdzv.endpoint.host, "node1");
    assert_string_equal(f.config.run.run_id, "slurm-17.2");
    port = f.config.rdzv.endpoint.port;
    slurm_env[4][strlen("SLURM_NODEID=")] = '0';
    resolve("--nnodes=2:3 --rdzv-id=mine true", slurm_env);
    slurm_env[4][strlen("SLURM_NODEID=")] = '1';
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.run.nodes.min, 2);
    assert_int_equal(f.config.rdzv.is_host, CONFIG_HOST_YES);
    assert_int_equal(f.config.rdzv.endpoint.port, port);
    assert_string_equal(f.config.run.run_id, "mine");
}

TEST(what_the_user_says_wins_over_slurm)
{
    resolve("--nnodes=3 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_string_equal(f.config.rdzv.endpoint.host, "head");
    assert_int_equal(f.config.run.node_rank, -1);
    resolve("--standalone true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.rdzv.backend, CONFIG_LOCAL);
    assert_string_equal(f.log, ""); /* task 0 warns */
    slurm_env[4][strlen("SLURM_NODEID=")] = '0';
    resolve("--standalone true", slurm_env);
    slurm_env[4][strlen("SLURM_NODEID=")] = '1';
    assert_non_null(strstr(f.log, "each of the 3 tasks that Slurm starts is a run"));
}

TEST(an_endpoint_alone_keeps_the_number_of_nodes_of_the_step)
{
    resolve("--rdzv-endpoint=head:1234 true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.rdzv.backend, CONFIG_C10D);
    assert_int_equal(f.config.run.nodes.min, 3);
    assert_int_equal(f.config.run.nodes.max, 3);
    assert_true(f.config.run.has_size);
    assert_expected("node1,node2,node3", 0);
    resolve("--rdzv-backend=c10d --rdzv-endpoint=head true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.rdzv.endpoint.port, 29400);
    assert_int_equal(f.config.run.nodes.max, 3);
    resolve("--rdzv-endpoint=head true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.rdzv.endpoint.port, 29400);
    resolve("--nnodes=1 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_int_equal(f.config.run.nodes.max, 1);
    resolve("--node-rank=0 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_int_equal(f.config.run.nodes.max, 1);
    resolve("--rdzv-endpoint=localhost:1234 true", slurm_env); /* a run each */
    assert_int_equal(f.config.run.nodes.max, 1);
    resolve("--rdzv-backend=c10d --rdzv-endpoint=127.0.0.1:1234 true", slurm_env);
    assert_int_equal(f.config.run.nodes.max, 1);
    resolve("--rdzv-backend=c10d --rdzv-endpoint=head:0 true", slurm_env);
    assert_int_equal(f.config.run.nodes.max, 1);
    resolve("--rdzv-backend=static --rdzv-endpoint=head true", slurm_env);
    assert_int_equal(f.rc, -EINVAL); /* as torchrun */
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] =
        '8'; /* agents that serve themselves */
    resolve("--rdzv-endpoint=head:1234 true", slurm_env);
    assert_int_equal(f.config.run.nodes.max, 24);
    assert_expected("node1,node2,node3", 8);
    resolve("--nproc-per-node=8 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_int_equal(f.config.run.nodes.max, 3);
    assert_expected("node1,node2,node3", 0);
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '1';
}

TEST(the_nodes_of_the_step_are_expected_where_nnodes_is_their_number)
{
    resolve("--nnodes=3 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_expected("node1,node2,node3", 0);
    resolve("--nnodes=2:3 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_expected("node1,node2,node3", 0);
    resolve("--nnodes=2 --rdzv-endpoint=head:1234 true", slurm_env); /* which two? */
    assert_expected("", 0);
    resolve("--nnodes=4 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_expected("", 0);
    resolve("--nnodes=3 --rdzv-endpoint=localhost:1234 true", slurm_env);
    assert_expected("", 0);
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '8';
    resolve("--nnodes=24 --rdzv-endpoint=head:1234 true", slurm_env);
    assert_expected("node1,node2,node3", 8);
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '1';
}

TEST(a_step_that_does_not_fit_is_refused)
{
    resolve("--nnodes=4 true", slurm_env);
    assert_int_equal(f.rc, CTRUN_E_USAGE);
    assert_non_null(strstr(f.err.text, "srun -N4"));
    assert_non_null(strstr(f.err.text, "#SBATCH --nodes=4"));
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '8';
    resolve("--nnodes=1:2 true",
            slurm_env); /* each task is a rank: their number is fixed */
    assert_int_equal(f.rc, CTRUN_E_USAGE);
    resolve("--nnodes=1 true", slurm_env);
    assert_int_equal(f.rc, CTRUN_E_USAGE);
    assert_non_null(strstr(f.err.text, "--nproc-per-node above 1"));
    assert_non_null(strstr(f.err.text, "srun -N1"));
    resolve("--nnodes=2 --rdzv-endpoint=h:1 true", slurm_env); /* 24 agents */
    assert_non_null(strstr(f.err.text, "--nproc-per-node above 1"));
    assert_int_equal(f.rc, CTRUN_E_USAGE);
    assert_non_null(strstr(f.err.text, "--ntasks-per-node=1"));
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '1';
}

TEST(several_tasks_a_node_are_ranks_or_one_agent)
{
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '8';
    resolve("true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.run.nodes.min, 24);
    assert_int_equal(f.config.run.nodes.max, 24);
    assert_int_equal(f.config.run.nproc, 1);
    assert_true(f.config.run.task.is_rank);
    assert_int_equal(f.config.run.task.local_count, 8);
    assert_int_equal(f.config.run.task.node_count, 3);
    resolve("--stdin=24 true", slurm_env);
    assert_int_equal(f.rc, CTRUN_E_USAGE);
    assert_non_null(strstr(f.err.text, "there are 24 ranks"));
    resolve("--nproc-per-node=8 true", slurm_env); /* never 8 times 8 */
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.run.nodes.max, 3);
    assert_int_equal(f.config.run.nproc, 8);
    assert_false(f.config.run.task.is_rank);
    /* Here --nnodes counts tasks. */
    resolve("--nnodes=24 --rdzv-endpoint=h:1 true", slurm_env);
    assert_int_equal(f.rc, 0);
    assert_int_equal(f.config.run.nodes.max, 24);
    assert_false(f.config.run.task.is_rank);
    slurm_env[3][strlen("SLURM_STEP_TASKS_PER_NODE=")] = '1';
}

int main(void)
{
    return test_run(NULL, end);
}
