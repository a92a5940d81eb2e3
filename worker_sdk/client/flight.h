/* SPDX-License-Identifier: Apache-2.0 */
/* Records the calls of this process on its groups (wire/flight.h). One record for each process; it
 * stays until the process ends. Any thread; nothing blocks. Without memory for the record nothing
 * is written. */
#pragma once

#include <stdint.h>

/* The record's descriptor, which stays ours; the first call makes it. Or a negative errno. */
int ct_flight_open(void);
/* Registers a group of this process. Returns its id for the calls. */
uint32_t ct_flight_add_group(const char *name, int me, int size);

struct ct_flight_call {
    const char *name;
    uint64_t now_ns; /* ct_now_ns() */
    uint32_t group;
    uint64_t sequence; /* 0: not one of the group's collectives */
    uint64_t count;
    int dtype;
    int peer;
};
/* Returns the number for ct_flight_end(); 0: the call was not recorded. */
uint64_t ct_flight_begin(const struct ct_flight_call *call);
/* result: 0, a negative code, or 1 if nobody will wait for the end of the call. */
void ct_flight_end(uint64_t number, int result);
