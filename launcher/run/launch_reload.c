/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl reload: another command line, checked when the nodes agree on it, used from the next
 * round on. */

#include "launcher/config/program_hash.h"
#include "launcher/options/shell_words.h"
#include "launcher/report/messages.h"
#include "launcher/run/launch_private.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

static int find_program(const struct launch *launch, struct launch_reload *out,
                        const char *command, struct ctrun_error *err)
{
    const struct config *config = launch->config;
    int rc;

    if (config->run.roles.count > 0)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "a run of several programs (--role) cannot reload: start it again");
    if ((rc = shell_words_split(&out->words, command, err)) < 0)
        return rc;
    if (!out->words[0])
        return ct_fail(err, CTRUN_E_USAGE, "the command is empty");
    return program_resolve_like(&out->program, &config->work.program, out->words,
                                config->env, err);
}

int launch_on_reload(void *context, const struct ct_reload *message, bool is_taken,
                     uint64_t *program, struct ctrun_error *err)
{
    struct launch *launch = context;
    struct launch_reload reload = {0};
    const int rc = find_program(launch, &reload, message->command, err);
    char shown[CT_COMMAND_MAX];

    if (rc == 0)
        *program = program_hash(&reload.program, launch->config->env);
    if (rc < 0 || !is_taken) {
        shell_words_free(reload.words);
        return rc;
    }
    shell_words_free(launch->reload.words);
    launch->reload = reload;
    (void)ct_copy(shown, sizeof shown, message->command); /* same size */
    ct_make_plain(shown, false);
    messages_notice("from the next round on the workers run: %s (asked on %s)", shown,
                    message->by);
    return 0;
}

void launch_use_reload(struct launch *launch)
{
    if (!launch->reload.words)
        return;
    *launch->program = launch->reload.program;
    launch->no_program = NULL;
    shell_words_free(launch->used_words); /* words of earlier rounds */
    launch->used_words = launch->reload.words;
    launch->reload.words = NULL;
}

void launch_deinit_reload(struct launch *launch)
{
    shell_words_free(launch->reload.words);
    shell_words_free(launch->used_words);
    launch->reload.words = launch->used_words = NULL;
}
