/* SPDX-License-Identifier: Apache-2.0 */
/* What those fill who may tell how the nodes meet: options, a batch system, --hosts. One of them may tell
 * the size of the run, this node's place in it and where it is met all at once. */
#pragma once

#include "launcher/config/rdzv_settings.h"
#include "launcher/config/run_config.h"
#include "launcher/options/option.h"

struct rdzv_target {
    struct run_config *run;
    struct rdzv_settings *rdzv;
    char *const *env; /* borrowed */
};
