/* SPDX-License-Identifier: Apache-2.0 */
/* --warm: what this node's template starts with. */
#pragma once

#include "agent/process/template.h"
#include "launcher/config/config.h"
#include "worker_sdk/base/env.h"

struct warm {
    struct template_plan plan;
    struct ct_env env; /* owned */
};

/* 1: out->plan is made, and refers to `out` and to `config`. 0: there is to be none, and where one was
 * asked for a warning has said why; or a code. warm_deinit() in any case. */
int warm_init(struct warm *out, const struct config *config, struct ctrun_error *err);
void warm_deinit(struct warm *warm);
