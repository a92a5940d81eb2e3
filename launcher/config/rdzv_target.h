/* SPDX-License-Identifier: Apache-2.0 */
/* The settings that a source of the rendezvous fills: the options, a batch system or --hosts. One
 * source may give the size of the run, this node's place in it and the endpoint at once. */
#pragma once

#include "launcher/config/rdzv_settings.h"
#include "launcher/config/run_config.h"
#include "launcher/options/option.h"

struct rdzv_target {
    struct run_config *run;
    struct rdzv_settings *rdzv;
    char *const *env; /* borrowed */
};
