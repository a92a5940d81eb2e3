/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that were rejected, logged in one line per kind and period: a port scanner must not
 * fill the log, but its address must be in the log. Pure.
 *
 *     warning: refused 10.1.2.3: it is no node of this run (and 41 more like it in 10 s)
 * */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/seldom.h"

enum reject_kind {
    REJECT_FOREIGN,   /* speaks none of our protocols: TLS, SSH, noise */
    REJECT_SLOW,      /* sent no complete request in time */
    REJECT_NO_MEMBER, /* at a worker store, not from a node of its round */
    REJECT_EARLY,     /* at a worker store, whose nodes are not known yet */
    REJECT_USER,      /* at a worker store, another user of this machine */
    REJECT_GONE, /* at a worker store, closed before its user was known; not logged */
    REJECT_MALFORMED, /* a request that no client sends, or one that is too long */
    REJECT_TOO_MANY,  /* too many connections, or too many unproven ones */
    REJECT_UNPROVEN,  /* no token, or a wrong one */
    REJECT_KINDS
};

struct rejects {
    struct {
        uint64_t count; /* since start */
        struct ct_seldom lines;
    } kinds[REJECT_KINDS];
};

/* Counts a rejected connection. True if a line is due; *more is then the number of earlier ones
 * without a line. */
bool rejects_note(struct rejects *rejects, enum reject_kind kind, uint64_t now_ms,
                  uint64_t *more);
const char *reject_name(enum reject_kind kind); /* "foreign", ...; for metrics */
/* "it speaks none of our protocols" */
const char *reject_sentence(enum reject_kind kind);
