/* SPDX-License-Identifier: Apache-2.0 */
/* How this node proves that it belongs to the run: by a token (--rdzv-token-file, else CTRUN_TOKEN,
 * else, for a run of one node that serves itself, a random one that nobody has to know about), or
 * by MUNGE, which is the default for several nodes under Slurm. --auth narrows it down. */
#pragma once

#include "launcher/config/config.h"

/* `config` is resolved but for its token; `from_env` is the value of CTRUN_TOKEN (may be empty).
 * 0 or CTRUN_E_USAGE; nothing to prove is no error. */
int token_resolve(struct config *config, const struct options *options,
                  const struct ct_auth_token *from_env, struct ctrun_error *err);
