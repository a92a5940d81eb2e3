/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that were turned away, told in one line per kind and period: a scanner must not
 * fill the log, and its owner must still be found. Pure.
 *
 *     warning: refused 10.1.2.3: it is no node of this run (and 41 more like it in 10 s)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/seldom.h"

enum reject_kind {
    REJECT_FOREIGN,   /* speaks none of our protocols: TLS, SSH, noise */
    REJECT_SLOW,      /* did not say in time what it wants */
    REJECT_NO_MEMBER, /* at a worker store, from no node of its round */
    REJECT_USER,      /* at a worker store, another user of this machine */
    REJECT_GONE, /* at a worker store, closed before it was known whose it is; not told */
    REJECT_MALFORMED, /* a request that no client sends, or one that is too long */
    REJECT_TOO_MANY,  /* connections, or such that have not proved who they are */
    REJECT_UNPROVEN,  /* no token, or another */
    REJECT_KINDS
};

struct rejects {
    struct {
        uint64_t count; /* since birth */
        struct ct_seldom lines;
    } kinds[REJECT_KINDS];
};

/* Counts one. True when a line is due; then *more are those of before that had none. */
bool rejects_note(struct rejects *rejects, enum reject_kind kind, uint64_t now_ms,
                  uint64_t *more);
const char *reject_name(enum reject_kind kind); /* "foreign", ...; for metrics */
/* "it speaks none of our protocols" */
const char *reject_sentence(enum reject_kind kind);
