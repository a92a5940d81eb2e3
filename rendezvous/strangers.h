/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that were turned away, told in one line per kind and period: a scanner must not
 * fill the log, and its owner must still be found. Pure.
 *
 *     warning: refused 10.1.2.3: it is no node of this run (and 41 more like it in 10 s)
 */
#ifndef RENDEZVOUS_STRANGERS_H
#define RENDEZVOUS_STRANGERS_H

#include <stdbool.h>
#include <stdint.h>

enum stranger_kind {
    STRANGER_FOREIGN,   /* speaks none of our protocols: TLS, SSH, noise */
    STRANGER_SLOW,      /* did not say in time what it wants */
    STRANGER_NO_MEMBER, /* at a worker store, from no node of its round */
    STRANGER_MALFORMED, /* a request that no client sends, or one that is too long */
    STRANGER_TOO_MANY,  /* connections, or silent ones */
    STRANGER_UNPROVEN,  /* no token, or another */
    STRANGER_KINDS
};

struct strangers {
    struct {
        uint64_t count;   /* since birth */
        uint64_t untold;  /* since the last line */
        uint64_t told_ms; /* when that was; 0: never */
    } kinds[STRANGER_KINDS];
};

/* Counts one. True when a line is due; then *more are those of before that had none. */
bool strangers_note(struct strangers *strangers, enum stranger_kind kind,
                    uint64_t now_ms, uint64_t *more);
const char *stranger_name(enum stranger_kind kind); /* "foreign", ...; for metrics */
/* "it speaks none of our protocols" */
const char *stranger_sentence(enum stranger_kind kind);

#endif
