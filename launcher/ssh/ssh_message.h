/* SPDX-License-Identifier: Apache-2.0 */
/* What the ctruns of a --hosts run say to each other through ssh's pipes.
 *
 *   above (who typed --hosts, or a relay)      below (ctrun --relay, started by ssh)
 *                                  ◀───────── greeting: one line, before it whatever the login shell says
 *     JOB, in pieces ───────────────────────▶ which hosts are yours, what to run
 *                                  ◀───────── READY or FAILED, once for every host
 *     STAGE, in pieces ─────────────────────▶ (--stage) what is to lie on every host
 *                                  ◀───────── NEED, in pieces: what does not lie there yet
 *     PIECE ... ────────────────────────────▶ bytes of it, to those below who need them
 *                                  ◀───────── STAGING now and then, STAGED at last
 *     SERVE (one host) ─────────────────────▶ open the rendezvous
 *                                  ◀───────── SERVING its address
 *     GO ───────────────────────────────────▶ start this host's ctrun; it meets the others there
 *                                  ◀───────── STARTED, OUTPUT, WORDS ..., at last ENDED or LOST
 *     SIGNAL ───────────────────────────────▶ to every ctrun
 *     (end of file) ────────────────────────▶ whoever is above is gone: end everything at once
 *
 * Frames of wire/frame.h with kinds of their own; one layout for all. Pure. */
#pragma once

#include "worker_sdk/wire/frame.h"

/* The version is in the line: two that differ do not understand each other at all. */
#define SSH_GREETING "CTRUN-RELAY 3\n"

enum ssh_kind {
    SSH_JOB = 64, /* data: a piece; code: 1 when it is the last */
    SSH_SERVE = 65,
    SSH_GO = 66,     /* data: the endpoint; empty: what the command line says */
    SSH_SIGNAL = 67, /* code: the signal */
    SSH_STAGE = 68,  /* data: a piece of a manifest; code: 1 when it is the last */
    SSH_PIECE = 69,  /* data: see stage_piece.h */
    SSH_READY = 80,
    SSH_SERVING = 81, /* data: the endpoint */
    SSH_FAILED = 82,  /* before GO. code: CTRUN_E_*; data: why */
    SSH_OUTPUT = 83,  /* code: 1 stdout, 2 stderr; data: whole lines */
    SSH_WORDS = 84,   /* code: its level; data: one message of the launcher itself */
    SSH_STARTED = 85, /* its first round has begun */
    SSH_ENDED = 86,   /* code: exit code of its ctrun */
    SSH_LOST = 87,    /* after READY. data: why */
    SSH_NEED = 88,    /* data: runs of chunks (stage_set.h); code: 1 in the last */
    SSH_STAGING = 89, /* data: u64 bytes that were looked at or taken: I am alive */
    SSH_STAGED = 90,
};

enum {
    SSH_DATA_MAX_BYTES = 48 * 1024,
};

struct ssh_message {
    enum ssh_kind kind;
    uint32_t host; /* its place in the list */
    int32_t code;
    const void *data; /* borrowed */
    size_t length;
};

/* Appends it as one frame. 0, -EMSGSIZE, -ENOBUFS, -ENOMEM. */
int ssh_message_encode(struct ct_buf *out, const struct ssh_message *message);
/* 0, or -EBADMSG: malformed, or of no kind that there is. */
int ssh_message_decode(const struct ct_frame *frame, struct ssh_message *out);
