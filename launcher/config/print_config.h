/* SPDX-License-Identifier: Apache-2.0 */
/* --print-config: every setting, its value, and where the value comes from. */
#pragma once

#include <stdio.h>

#include "launcher/config/config.h"

/* 0, or a code when writing to `out` failed. */
int print_config(FILE *out, const struct options *options, const struct config *config,
                 bool as_json, struct ctrun_error *err);
