/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/token.h"

#include "launcher/seat.h"
#include "worker_sdk/base/log.h"

int token_resolve(struct config *config, const struct options *options,
                  const struct ct_auth_token *from_env, struct ctrun_error *err)
{
    int rc;

    /* With --hosts the file was read where it was named; it need not be here. */
    if (option_has_text(options, OPTION_RDZV_TOKEN_FILE) &&
        !(seat_get()->is_given && from_env->length > 0)) {
        rc = ct_auth_token_read(&config->token,
                                option_text(options, OPTION_RDZV_TOKEN_FILE), err);
        return rc < 0 ? ct_wrap(err, "--rdzv-token-file") : 0;
    }
    if (from_env->length > 0)
        config->token = *from_env;
    else if (config->backend == CONFIG_LOCAL)
        return ct_auth_token_generate(&config->token, err);
    if (config->token.length == 0)
        ct_info("no token: nodes are not authenticated; --rdzv-token-file makes them "
                "prove that they belong together");
    return 0;
}
