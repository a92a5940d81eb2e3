/* SPDX-License-Identifier: Apache-2.0 */
/* --warm: how this node's template process is started. */
#pragma once

#include "agent/process/template.h"
#include "launcher/config/config.h"
#include "worker_sdk/base/env.h"

struct warm {
    struct template_plan plan;
    struct ct_env env; /* owned */
};

/* 1: out->plan is made, and refers to `out` and to `config`. 0: no template is used; if --warm was
 * given, a warning says why. Or a code. Call warm_deinit() in any case. */
int warm_init(struct warm *out, const struct config *config, struct ctrun_error *err);
void warm_deinit(struct warm *warm);
