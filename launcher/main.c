/* SPDX-License-Identifier: Apache-2.0 */
/* ctrun: options, then configuration, then the guard and, inside it, this node's part
 * of the run. Nothing is looked up, loaded or opened before it is needed: a start costs
 * milliseconds. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/guard.h"
#include "launcher/completion.h"
#include "launcher/config.h"
#include "launcher/dry_run.h"
#include "launcher/fleet.h"
#include "launcher/fleet_relay.h"
#include "launcher/fleet_stage.h"
#include "launcher/help.h"
#include "launcher/launch.h"
#include "launcher/merge.h"
#include "launcher/messages.h"
#include "launcher/option_file.h"
#include "launcher/print_config.h"
#include "launcher/seat.h"
#include "launcher/sender.h"
#include "launcher/token.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static int refuse(const struct ctrun_error *err, bool torchrun_exit_code)
{
    int code = messages_exit_code(err->code);

    messages_error(err);
    if (code == CT_EXIT_USAGE)
        messages_say(HELP_USAGE "; ctrun --help tells more");
    else if (torchrun_exit_code)
        code = CT_EXIT_FAILURE;
    return code;
}

static int say_and_leave(const struct options *options)
{
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
    return fflush(stdout) == 0 ? CT_EXIT_OK : CT_EXIT_FAILURE;
}

static void open_events(void)
{
    const char *path = ct_env_find(environ, CT_ENV_EVENTS);
    int rc = path && *path ? ct_event_open(path) : 0;

    if (rc < 0)
        messages_say("warning: %s=%s: %s; events are not written", CT_ENV_EVENTS, path,
                     strerror(-rc));
}

static int agent_main(void *context)
{
    return launch_run(context);
}

static int run(struct config *config, const struct options *options)
{
    struct ctrun_error err;
    int rc;

    if (options->values[OPTION_PRINT_CONFIG].is_on) {
        rc = print_config(stdout, options, config, options->values[OPTION_JSON].is_on,
                          &err);
        return rc < 0 ? refuse(&err, config->torchrun_exit_code) : CT_EXIT_OK;
    }
    if (options->values[OPTION_DRY_RUN].is_on) {
        rc = dry_run_print(stdout, config, options->values[OPTION_JSON].is_on, &err);
        return rc < 0 ? refuse(&err, config->torchrun_exit_code) : CT_EXIT_OK;
    }
    open_events();
    for (size_t i = 0; i < config->signal_count; i++)
        sender_heed(config->signals[i]);
    rc = guard_run(agent_main, config, &err);
    return rc < 0 ? launch_fail(config, &err) : rc;
}

static int refuse_tasks(const struct options *options, const struct ctrun_error *err)
{
    return refuse(err, strcmp(option_text(options, OPTION_EXIT_CODE), "torchrun") == 0);
}

static int resolve(struct config *config, const struct options *options,
                   const struct ct_auth_token *token, struct ctrun_error *err)
{
    int rc = fleet_stage_check(options, err);

    if (rc == 0)
        rc = config_resolve(config, options, environ, err);

    if (rc == 0)
        rc = token_resolve(config, options, token, err);
    if (rc < 0)
        option_file_blame(options, err);
    return rc;
}

/* The process that --hosts was typed at. */
static int run_fleet(const struct options *options, char **argv,
                     const struct ct_auth_token *token)
{
    const bool torchrun_exit_code = strcmp(option_text(options, OPTION_EXIT_CODE),
                                           "torchrun") == 0;
    struct ctrun_error err;
    int code;

    open_events();
    code = fleet_run(options, argv, token, &err);
    if (code < 0)
        option_file_blame(options, &err);
    return code < 0 ? refuse(&err, torchrun_exit_code) : code;
}

/* The hosts of --hosts are told what the file says; they may not have it. */
static int parse(struct options *options, int argc, char **argv,
                 struct ctrun_error *err)
{
    int rc = options_parse(options, argc, argv, environ, err);

    return rc < 0 || options->action != OPTIONS_RUN || seat_get()->is_given
               ? rc
               : option_file_load(options, err);
}

static bool is_run(const struct options *options)
{
    return !options->values[OPTION_PRINT_CONFIG].is_on &&
           !options->values[OPTION_DRY_RUN].is_on;
}

int main(int argc, char **argv)
{
    struct ctrun_error err = {.code = -ENOMEM, .text = "out of memory"};
    struct ct_auth_token token = {0};
    struct config *config = ct_zalloc(sizeof *config);
    struct merge merge = {0};
    struct options options = {0};
    int code;

    if (argc == 2 && strcmp(argv[1], "--relay") == 0)
        return fleet_relay_run();
    if (!seat_take_env())
        return refuse(&(struct ctrun_error){CTRUN_E_BAD_ENVIRONMENT,
                                            SEAT_ENV ": is set by --hosts alone"},
                      false);
    messages_open_log(ct_env_find(environ, "LOGLEVEL"));
    if (!config)
        return refuse(&err, false);
    if (ct_auth_token_take_env(&token, &err) < 0 || /* no child ever sees it */
        parse(&options, argc, argv, &err) < 0)
        code = refuse(&err, false);
    else if (options.action != OPTIONS_RUN)
        code = say_and_leave(&options);
    else if (fleet_is_wanted(&options) && is_run(&options))
        code = run_fleet(&options, argv, &token);
    else if (fleet_is_wanted(&options) && fleet_preview(&options, &err) < 0)
        code = refuse(&err, false);
    else if (!seat_get()->is_given && merge_tasks(&merge, &options, environ, &err) < 0)
        code = refuse_tasks(&options, &err);
    else if (merge.is_done)
        code = merge.code;
    else if (resolve(config, &options, &token, &err) < 0)
        code = refuse(&err, config->torchrun_exit_code);
    else
        code = run(config, &options);
    config_deinit(config);
    ct_auth_token_wipe(&token);
    options_deinit(&options);
    free(config);
    merge_close(&merge, code);
    return code;
}
