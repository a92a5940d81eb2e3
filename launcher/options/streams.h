/* SPDX-License-Identifier: Apache-2.0 */
/* --redirects, --tee and --local-ranks-filter: where the two streams of each worker go.
 *
 * A value is one digit for all (3) or a map of local ranks (0:1,12:3): bit 1 is stdout,
 * bit 2 is stderr, ranks that are not named get 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/output/stream.h"
#include "launcher/options/nnodes.h"

enum {
    STREAM_STDOUT = 1,
    STREAM_STDERR = 2
};

struct streams {
    uint8_t redirects[NPROC_MAX];
    uint8_t tees[NPROC_MAX];
    bool is_shown[NPROC_MAX]; /* may reach the console */
};

/* The three options as typed. 0, -EINVAL. */
int streams_parse(struct streams *out, const char *redirects, const char *tees,
                  const char *filter, struct ctrun_error *err);
/* stream is STREAM_STDOUT or STREAM_STDERR. */
enum agent_stream streams_target(const struct streams *streams, int local_rank,
                                 int stream);
/* True for what is written to a log file, perhaps among other things. */
bool streams_has_file(enum agent_stream stream);
