/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/launch_exit.h"

#include <unistd.h>

#include "launcher/report/exit_status.h"
#include "agent/error_file/json_error_file.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/wire/contract.h"

const char *launch_own_error_file(void)
{
    const char *path = ct_env_find(environ, CT_ENV_ERROR_FILE);

    return path && *path ? path : NULL;
}

void launch_write_own_error(const char *message)
{
    const char *path = launch_own_error_file();
    struct ctrun_error err;

    if (path && json_error_file_write(path, message, &err) < 0)
        messages_error(&err);
}

void launch_print_error(const struct ctrun_error *err)
{
    messages_error(err);
    launch_write_own_error(err->text);
}

int launch_fail(const struct config *config, const struct ctrun_error *err)
{
    launch_print_error(err);
    return exit_status(&(struct exit_end){.error = err->code}, config->stop.exit_style);
}
