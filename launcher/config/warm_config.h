/* SPDX-License-Identifier: Apache-2.0 */
/* --warm: the modules that the template imports, from which workers are forked. */
#pragma once

#include <stdint.h>

#include "launcher/options/option.h"

#define WARM_ENV_TIMEOUT "CTRUN_WARM_TIMEOUT" /* seconds that the imports may take */

#define WARM_AUTO                                                                      \
    "auto" /* in the list: what the workers had imported at their first step */

struct warm_config {
    const char *modules; /* NULL: workers are started by exec. Borrowed */
    uint64_t limit_ms;
};

/* 0, or CTRUN_E_USAGE. */
int warm_config_resolve(struct warm_config *out, const struct options *options,
                        char *const *env, struct ctrun_error *err);
