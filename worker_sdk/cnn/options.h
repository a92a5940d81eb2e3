/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of ctrun-mnist. */
#pragma once

#include <stdio.h>

#include "worker_sdk/cnn/train.h"

/* Fills out from the arguments and the defaults; text is kept, it points into argv. Returns 0,
 * 1 when --help was asked for, 2 for --version, or CTRUN_E_USAGE with one sentence. */
int cnn_options_parse(struct cnn_train_options *out, int argc, char **argv,
                      struct ctrun_error *err);
void cnn_options_help(FILE *to);
