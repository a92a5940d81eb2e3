/* SPDX-License-Identifier: Apache-2.0 */
/* --print-config: every setting, what it came to, and who said so. */
#pragma once

#include <stdio.h>

#include "launcher/config/config.h"

/* 0, or a code when `out` does not take it. */
int print_config(FILE *out, const struct options *options, const struct config *config,
                 bool as_json, struct ctrun_error *err);
