/* SPDX-License-Identifier: Apache-2.0 */
/* --dry-run: what ctrun would do, on stdout, with nothing opened and nothing started. */
#pragma once

#include <stdio.h>

#include "launcher/config/config.h"

/* Values that the nodes agree on at the rendezvous are "?" in text and null in JSON. 0 or
 * a code. */
int dry_run_print(FILE *out, const struct config *config, bool as_json,
                  struct ctrun_error *err);
