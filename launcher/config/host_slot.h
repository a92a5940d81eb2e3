/* SPDX-License-Identifier: Apache-2.0 */
/* The place of this ctrun in a --hosts run, given by the process that started it: in
 * CTRUN_HOST_SLOT, "PLACE/TOTAL/ENDPOINT/RUN_ID", and on descriptor 3 a socket for the launcher's
 * own messages, one record each, apart from the workers' output. One per process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "launcher/report/messages.h"

#define HOST_SLOT_ENV     "CTRUN_HOST_SLOT"
#define HOST_SLOT_CHANNEL 3

/* The first byte of a record is its type; a level (enum messages_level) and the text follow
 * WORDS. */
enum host_slot_record {
    HOST_SLOT_STARTED = 1, /* our first round has begun */
    HOST_SLOT_WORDS = 2,
    HOST_SLOT_VERDICT = 3, /* our exit code is the run's */
    /* no worker runs, and held checkpoints are not on the disk yet; seconds (decimal) within which they are, or are lost */
    HOST_SLOT_SAVING = 4,
    /* the run has succeeded, but our exit code is not 0, and is the run's though others end with 0 */
    HOST_SLOT_FLAW = 5,
};
enum {
    HOST_SLOT_WORDS_HEAD_BYTES = 2
};

struct host_slot {
    bool is_given;
    int place;
    int total;
    char endpoint[300]; /* empty: that of the command line */
    char run_id[256];
    char hosts[1024]; /* for --dry-run: all of them, as a hostlist; perhaps cut */
};

/* Takes CTRUN_HOST_SLOT out of the environment, for our children. False when it is malformed. */
bool host_slot_take_env(void);
/* Sets the slot as if it had been given: for --dry-run. */
void host_slot_set(const struct host_slot *slot);
const struct host_slot *host_slot_get(void);
/* Sends one message of the launcher: a messages_sink. False when there is no channel, or no process at its
 * end. */
bool host_slot_send_line(enum messages_level level, const char *text, size_t length);
/* Tells once that workers run. */
void host_slot_send_started(void);
/* Tells that this process writes checkpoints before it ends, for limit_ms at most. */
void host_slot_send_saving(uint64_t limit_ms);
/* Tells that our exit code is the run's; has_flaw: also where other hosts end with 0. */
void host_slot_send_verdict(bool has_flaw);
