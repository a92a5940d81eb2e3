/* SPDX-License-Identifier: Apache-2.0 */
/* The last calls of a process on its groups: a memfd that its agent reads after a failure or when
 * ranks are stuck, also after the process' death. The worker sends it as the descriptor with
 * WORKER_FLIGHT.
 *
 * Calls have numbers from 1; number n is in entry (n - 1) % CT_FLIGHT_ENTRIES. Each entry has
 * number 0 while it is written. The reader must not trust the data. Writer and reader are on the
 * same machine: native numbers, in the compiler's layout. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
    CT_FLIGHT_MAGIC = 0x43544652, /* "CTFR" */
    CT_FLIGHT_VERSION = 1,
    CT_FLIGHT_ENTRIES = 2048,
    CT_FLIGHT_GROUPS = 64, /* that are known by name: the newest */
    CT_FLIGHT_NAME_MAX = 16,
    CT_FLIGHT_GROUP_MAX = 104,
};

struct ct_flight_group {
    _Atomic uint32_t id; /* from 1; 0: none, or it is being written */
    int32_t me;          /* index of this process in the group */
    int32_t size;
    char name[CT_FLIGHT_GROUP_MAX]; /* the same on all its members */
};

/* Written by one thread while the agent may copy it: a copy with number 0 was being written. A copy
 * taken just while the slot changed from one call to the next may be a mix of both. */
struct ct_flight_entry {
    _Atomic uint64_t number;
    uint64_t begin_ns;       /* CLOCK_BOOTTIME, as ct_now_ns() */
    _Atomic uint64_t end_ns; /* 0: it has not ended */
    uint64_t sequence;       /* number among the group's collectives; 0: a message */
    uint64_t count;          /* elements */
    uint32_t group;          /* id of the group */
    int32_t peer;            /* root, sender or receiver */
    int32_t result;          /* after the end: 0 or a code; 1: the device does it */
    int32_t dtype;           /* enum ctrun_dtype */
    char name[CT_FLIGHT_NAME_MAX];
};

struct ct_flight {
    uint32_t magic;
    uint32_t version;
    int32_t pid;
    _Atomic uint32_t groups; /* number of groups ever opened */
    _Atomic uint64_t calls;  /* number of calls ever begun */
    struct ct_flight_group
        group[CT_FLIGHT_GROUPS]; /* id n is in (n - 1) % CT_FLIGHT_GROUPS */
    struct ct_flight_entry entry[CT_FLIGHT_ENTRIES];
};
