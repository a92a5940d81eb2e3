/* SPDX-License-Identifier: Apache-2.0 */
/* The place of this ctrun in a --hosts run, given by the process that started it: in
 * CTRUN_SEAT, "PLACE/TOTAL/ENDPOINT/RUN_ID", and on descriptor 3 a socket for what the launcher
 * itself has to say, a record each, apart from the workers' output. One per process. */
#ifndef LAUNCHER_SEAT_H
#define LAUNCHER_SEAT_H

#include <stdbool.h>
#include <stddef.h>

#define SEAT_ENV     "CTRUN_SEAT"
#define SEAT_CHANNEL 3
/* A record of this one byte: our first round has begun. */
#define SEAT_STARTED "\x01"

struct seat {
    bool is_given;
    int place;
    int total;
    char endpoint[300]; /* empty: what the command line says */
    char run_id[256];
    char hosts[1024]; /* for --dry-run: all of them, as a hostlist; perhaps cut */
};

/* Takes CTRUN_SEAT out of the environment, for our children. False when it is malformed. */
bool seat_take_env(void);
/* As if it had been given: for --dry-run. */
void seat_set(const struct seat *seat);
const struct seat *seat_get(void);
/* Says one message of the launcher. False when there is no channel, or nobody at its end. */
bool seat_say(const char *text, size_t length);
/* Tells once that workers run. */
void seat_tell_started(void);

#endif
