/* SPDX-License-Identifier: Apache-2.0 */
/* ctrun: options, then configuration, then the guard and, inside it, this node's part
 * of the run. Nothing is looked up, loaded or opened before it is needed: a start costs
 * milliseconds. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/guard/guard.h"
#include "launcher/config/config.h"
#include "launcher/config/print_config.h"
#include "launcher/config/host_slot.h"
#include "launcher/config/token.h"
#include "launcher/ha/ha_keeper.h"
#include "launcher/main.h"
#include "launcher/options/completion.h"
#include "launcher/options/help.h"
#include "launcher/options/option_file.h"
#include "launcher/report/exit_status.h"
#include "launcher/report/messages.h"
#include "launcher/report/signal_sender.h"
#include "launcher/report/stack_limit.h"
#include "launcher/run/dry_run.h"
#include "launcher/run/launch.h"
#include "launcher/run/launch_exit.h"
#include "launcher/run/merge.h"
#include "launcher/ssh/ssh.h"
#include "launcher/ssh/ssh_relay.h"
#include "launcher/ssh/ssh_stage.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/std_streams.h"
#include "worker_sdk/wire/contract.h"

enum {
    FILES_MIN = 40, /* open files of a run with one worker, and a reserve */
};

static int refuse(const struct ctrun_error *err, enum exit_style style)
{
    const int code = exit_status(&(struct exit_end){.error = err->code}, style);

    launch_print_error(err);
    if (code == CT_EXIT_USAGE)
        messages_notice(HELP_USAGE "; ctrun --help has more");
    return code;
}

static int print_and_leave(const struct options *options)
{
    struct ctrun_error err;

    (void)signal(SIGPIPE, SIG_DFL); /* a closed pipe ends it silently */
    switch (options->action) {
    case OPTIONS_HELP: help_print(stdout); break;
    case OPTIONS_VERSION:
        printf("ctrun %d.%d.%d\n", CTRUN_VERSION_MAJOR, CTRUN_VERSION_MINOR,
               CTRUN_VERSION_PATCH);
        break;
    case OPTIONS_COMPLETION:
        completion_print(stdout, options->values[OPTION_PRINT_COMPLETION].text);
        break;
    case OPTIONS_RUN: break;
    }
    if (fflush(stdout) == 0)
        return CT_EXIT_OK;
    (void)ct_fail(&err, -errno, "standard output: %s", strerror(errno));
    return refuse(&err, EXIT_STYLE_OWN);
}

static void open_events(void)
{
    const char *path = ct_env_find(environ, CT_ENV_EVENTS);
    int rc = path && *path ? ct_event_open(path) : 0;

    if (rc < 0)
        messages_warn(0, "%s=%s: %s; events are not written", CT_ENV_EVENTS, path,
                      rc == -ENXIO ? "no process reads this pipe" : strerror(-rc));
}

static int agent_main(void *context)
{
    return launch_run(context);
}

/* The keeper runs beside the agent and starts before the agent: see ha_keeper.h. */
static int start_keeper(struct config *config, struct ha_keeper *keeper,
                        struct ctrun_error *err)
{
    const int rc = config->rdzv.ha.nodes == 0
                       ? 0
                       : ha_keeper_start(keeper, config->rdzv.ha.etcd,
                                         config->rdzv.ha.openssl, err);

    if (rc == 0 && keeper->pid > 0)
        guard_hand_over(keeper->fd);
    config->rdzv.ha.keeper = keeper->fd;
    return rc;
}

static bool is_run(const struct options *options)
{
    return !options->values[OPTION_PRINT_CONFIG].is_on &&
           !options->values[OPTION_DRY_RUN].is_on;
}

static int run(struct config *config, const struct options *options)
{
    struct ha_keeper keeper = {.fd = -1};
    struct ctrun_error err;
    int rc;

    if (!is_run(options))
        (void)signal(SIGPIPE, SIG_DFL); /* a closed pipe ends it silently */
    if (options->values[OPTION_PRINT_CONFIG].is_on) {
        rc = print_config(stdout, options, config, options->values[OPTION_JSON].is_on,
                          &err);
        return rc < 0 ? refuse(&err, config->stop.exit_style) : CT_EXIT_OK;
    }
    if (options->values[OPTION_DRY_RUN].is_on) {
        rc = dry_run_print(stdout, config, options->values[OPTION_JSON].is_on, &err);
        return rc < 0 ? refuse(&err, config->stop.exit_style) : CT_EXIT_OK;
    }
    open_events();
    ct_event_identify(config->run.run_id, config->run.host);
    for (size_t i = 0; i < config->stop.signal_count; i++)
        signal_sender_heed(config->stop.signals[i]);
    if (start_keeper(config, &keeper, &err) < 0)
        return launch_fail(config, &err);
    rc = guard_run(agent_main, config, &err);
    ha_keeper_wait(&keeper);
    return rc < 0 ? launch_fail(config, &err) : rc;
}

static int resolve(struct config *config, const struct options *options,
                   const struct ct_auth_token *token, struct ctrun_error *err)
{
    int rc = ssh_stage_check(options, err);

    if (rc == 0)
        rc = config_resolve(config, options, environ, err);

    if (rc == 0)
        rc = token_resolve(config, options, token, err);
    if (rc < 0)
        option_file_blame(options, err);
    return rc;
}

static void set_style(const struct options *options)
{
    const struct messages_style style = {
        .is_quiet = options->values[OPTION_QUIET].is_on,
        .is_verbose = options->values[OPTION_VERBOSE].is_on,
        .has_timestamps = options->values[OPTION_TIMESTAMPS].is_on,
    };

    messages_set_style(&style);
}

/* The ctrun that was called with --hosts: it starts a ctrun on each host by ssh. */
static int run_ssh(const struct options *options, char **argv,
                   const struct ct_auth_token *token)
{
    struct ctrun_error err;
    int code;

    open_events();
    if (strcmp(option_text(options, OPTION_SUMMARY), "auto") == 0 &&
        isatty(STDERR_FILENO)) /* the hosts have no terminal */
        (void)setenv(option_table[OPTION_SUMMARY].env, "short", 1);
    code = ssh_run(options, argv, token, &err);
    if (code < 0)
        option_file_blame(options, &err);
    return code < 0 ? refuse(&err, option_exit_style(options)) : code;
}

/* A ctrun that --hosts started reads no --config file: its command line has the file's options, and
 * its host may not have the file. */
static int parse(struct options *options, int argc, char **argv,
                 struct ctrun_error *err)
{
    int rc = options_parse(options, argc, argv, environ, err);

    if (rc == 0 && options->action == OPTIONS_RUN && !host_slot_get()->is_given)
        rc = option_file_load(options, err);
    if (rc == 0)
        set_style(options);
    return rc;
}

/* Only there are processes found that workers have left behind. */
static bool has_proc(struct ctrun_error *err)
{
    if (access("/proc/self/fd", F_OK) == 0) {
        if (ct_small_file_is_foreign())
            messages_warn(0,
                          "/proc shows the processes of another PID namespace: those "
                          "that workers leave behind are not found "
                          "(unshare has --mount-proc)");
        return true;
    }
    (void)ct_fail(
        err, CTRUN_E_RESOURCES,
        "/proc is not mounted here; ctrun finds the processes of workers there "
        "(mount -t proc proc /proc)");
    return false;
}

/* libuv aborts when no descriptor is left for its own pipe. */
static bool has_descriptors(struct ctrun_error *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max >= FILES_MIN)
        return true;
    (void)ct_fail(err, CTRUN_E_RESOURCES,
                  "this process may have %d open files at most (ulimit -Hn); ctrun "
                  "needs %d, and more for workers",
                  (int)limit.rlim_max, FILES_MIN);
    return false;
}

int main_ctrun(int argc, char **argv)
{
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    struct ct_auth_token *token = ct_secret_zalloc(sizeof *token);
    struct config *config = ct_secret_zalloc(sizeof *config);
    struct merge merge = {0};
    struct options options = {0};
    int code;

    ct_std_streams_fill();
#ifdef M_ARENA_MAX /* threads allocate little: one heap each would waste memory */
    (void)mallopt(M_ARENA_MAX, 1);
#endif
    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe must not change the exit code, */
    (void)signal(SIGXFSZ, SIG_IGN); /* nor must a limit of file size (ulimit -f) */
    if (argc == 2 && strcmp(argv[1], "--relay") == 0)
        return ssh_relay_run();
    if (!host_slot_take_env())
        return refuse(&(struct ctrun_error){CTRUN_E_BAD_ENVIRONMENT,
                                            HOST_SLOT_ENV ": is set by --hosts alone"},
                      EXIT_STYLE_OWN);
    if (host_slot_get()->is_given)
        messages_set_sink(host_slot_send_line);
    messages_open_log(ct_env_find(environ, "LOGLEVEL"));
    if (!config || !token || !has_descriptors(&err) ||
        stack_limit_check("ctrun", &err) < 0)
        return refuse(&err, EXIT_STYLE_OWN);
    if (ct_auth_token_take_env(token, &err) < 0 || /* no child inherits the token */
        parse(&options, argc, argv, &err) < 0)
        code = refuse(&err, EXIT_STYLE_OWN);
    else if (options.action != OPTIONS_RUN)
        code = print_and_leave(&options);
    else if (ssh_is_wanted(&options) && is_run(&options))
        code = run_ssh(&options, argv, token);
    else if (ssh_is_wanted(&options) && ssh_preview(&options, &err) < 0)
        code = refuse(&err, EXIT_STYLE_OWN);
    else if (is_run(&options) && !has_proc(&err))
        code = refuse(&err, option_exit_style(&options));
    else if (!host_slot_get()->is_given &&
             merge_tasks(&merge, &options, environ, &err) < 0)
        code = refuse(&err, option_exit_style(&options));
    else if (merge.is_done)
        code = merge.code;
    else if (resolve(config, &options, token, &err) < 0)
        code = refuse(&err, config->stop.exit_style);
    else
        code = run(config, &options);
    config_deinit(config);
    options_deinit(&options);
    ct_secret_free(token);
    ct_secret_free(config);
    merge_close(&merge, code);
    return code;
}
