/* SPDX-License-Identifier: Apache-2.0 */
/* Writes down the calls of this process on its groups (wire/flight.h). One record a process; it stays until the
 * process ends. Any thread; nothing blocks. Without memory for it nothing is written. */
#pragma once

#include <stdint.h>

/* Its descriptor, which stays ours; made by the first call. Or a negative errno. */
int ct_flight_open(void);
/* A group of this process: its id, for the calls. */
uint32_t ct_flight_add_group(const char *name, int me, int size);

struct ct_flight_call {
    const char *name;
    uint64_t now_ns; /* as ct_now_ns() has it */
    uint32_t group;
    uint64_t sequence; /* 0: not one of the group's collectives */
    uint64_t count;
    int dtype;
    int peer;
};
/* Returns the number for end(); 0: it was not written. */
uint64_t ct_flight_begin(const struct ct_flight_call *call);
/* result: 0, a negative code, or 1 where nobody will wait for its end. */
void ct_flight_end(uint64_t number, int result);
