/* SPDX-License-Identifier: Apache-2.0 */
/* The last calls of a process on its groups: memory of its own (a memfd) that its agent reads when something is
 * wrong, also after the process' death. It comes as the descriptor with WORKER_FLIGHT.
 *
 * Calls have numbers from 1; number n is in entry (n - 1) % CT_FLIGHT_ENTRIES. Each entry holds 0 as its number
 * while it is written. The reader believes nothing of it. Both are of the same machine: native numbers, and
 * no layout but the compiler's. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
    CT_FLIGHT_MAGIC = 0x43544652, /* "CTFR" */
    CT_FLIGHT_VERSION = 1,
    CT_FLIGHT_ENTRIES = 2048,
    CT_FLIGHT_GROUPS = 64, /* that are known by name: the last ones */
    CT_FLIGHT_NAME_MAX = 16,
    CT_FLIGHT_GROUP_MAX = 104,
};

struct ct_flight_group {
    _Atomic uint32_t id; /* from 1; 0: none, or being written */
    int32_t me;          /* our index in it */
    int32_t size;
    char name[CT_FLIGHT_GROUP_MAX]; /* the same on all its members */
};

/* Written by one thread while the agent may be copying it: a copy whose number is 0 was being written. One
 * that was taken just as its slot went from one call to the next may be a mix of the two. */
struct ct_flight_entry {
    _Atomic uint64_t number;
    uint64_t begin_ns;       /* CLOCK_BOOTTIME, as ct_now_ns() */
    _Atomic uint64_t end_ns; /* 0: under way */
    uint64_t sequence;       /* of the group's collectives; 0: a message */
    uint64_t count;          /* elements */
    uint32_t group;          /* its id */
    int32_t peer;            /* root, sender or receiver */
    int32_t result; /* once it is over: 0 or a code; 1: it was left to the device */
    int32_t dtype;  /* enum ctrun_dtype */
    char name[CT_FLIGHT_NAME_MAX];
};

struct ct_flight {
    uint32_t magic;
    uint32_t version;
    int32_t pid;
    _Atomic uint32_t groups; /* so many were ever opened */
    _Atomic uint64_t calls;  /* so many were ever begun */
    struct ct_flight_group
        group[CT_FLIGHT_GROUPS]; /* id n is in (n - 1) % CT_FLIGHT_GROUPS */
    struct ct_flight_entry entry[CT_FLIGHT_ENTRIES];
};
