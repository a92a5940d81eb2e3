/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/token.h"

#include <string.h>

#include "launcher/config/host_slot.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/wire/munge.h"

static int resolve_munge(struct config *config, struct ctrun_error *err)
{
    struct ctrun_error why;

    if (!ct_munge_is_usable(&why))
        return ct_fail(err, CTRUN_E_USAGE, "--auth=munge: %s", why.text);
    config->rdzv.uses_munge = true;
    return 0;
}

/* Slurm authenticates by MUNGE as a rule; a site without it continues without. */
static void try_munge(struct config *config)
{
    struct ctrun_error why;

    if (!config->run.batch_system || strcmp(config->run.batch_system, "Slurm") != 0 ||
        config->run.nodes.max < 2)
        return;
    config->rdzv.uses_munge = ct_munge_is_usable(&why);
    if (!config->rdzv.uses_munge)
        ct_info("%s", why.text);
}

static int take_token(struct config *config, const struct options *options,
                      const struct ct_auth_token *from_env, struct ctrun_error *err)
{
    int rc;

    /* With --hosts the file was read where ctrun was called; it need not exist here. */
    if (option_has_text(options, OPTION_RDZV_TOKEN_FILE) &&
        !(host_slot_get()->is_given && from_env->length > 0)) {
        rc = ct_auth_token_read(&config->rdzv.token,
                                option_text(options, OPTION_RDZV_TOKEN_FILE), err);
        return rc < 0 ? (ct_wrap(err, "--rdzv-token-file"), rc) : 0;
    }
    if (from_env->length > 0)
        config->rdzv.token = *from_env;
    else if (config->rdzv.backend == CONFIG_LOCAL)
        return ct_auth_token_generate(&config->rdzv.token, err);
    return 0;
}

static int choose(struct config *config, const struct options *options,
                  const struct ct_auth_token *from_env, struct ctrun_error *err)
{
    const char *auth = option_text(options, OPTION_AUTH);
    int rc;

    if (strcmp(auth, "none") == 0) {
        if (option_has_text(options, OPTION_RDZV_TOKEN_FILE) || from_env->length > 0)
            ct_warn("--auth=none: the token is not used");
        config->rdzv.accepts_anybody = true;
        return 0;
    }
    if (strcmp(auth, "munge") == 0)
        return resolve_munge(config, err);
    if ((rc = take_token(config, options, from_env, err)) < 0)
        return rc;
    if (strcmp(auth, "token") == 0 && config->rdzv.token.length == 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--auth=token: there is none; give --rdzv-token-file or "
                       "CTRUN_TOKEN");
    if (config->rdzv.token.length == 0)
        try_munge(config);
    config->rdzv.pmi.makes_token = config->rdzv.token.length == 0 &&
                                   !config->rdzv.uses_munge;
    return 0;
}

int token_resolve(struct config *config, const struct options *options,
                  const struct ct_auth_token *from_env, struct ctrun_error *err)
{
    const int rc = choose(config, options, from_env, err);
    bool has_secret;

    if (rc < 0)
        return rc;
    has_secret = config->rdzv.token.length > 0 || config->rdzv.uses_munge;
    /* MUNGE gives no secret that the certificates of --ha could be made of: their secret is sent to
     * the nodes. */
    config->rdzv.wants_seal = options->values[OPTION_ENCRYPT].is_on ||
                              (config->rdzv.ha.nodes > 0 && config->rdzv.uses_munge);
    if (config->rdzv.wants_seal && !has_secret)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--encrypt: without a secret it would protect nothing; give "
                       "--rdzv-token-file, CTRUN_TOKEN or --auth=munge on every node");
    if (!has_secret && !(config->rdzv.pmi.is_used && config->rdzv.pmi.makes_token))
        ct_info("no token: nodes are not authenticated; --rdzv-token-file makes them "
                "prove that they belong together");
    return 0;
}
