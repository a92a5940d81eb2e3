/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of a --hosts run, sent through ssh's pipes.
 *
 *   above (ctrun --hosts, or a relay)          below (ctrun --relay, started by ssh)
 *                                  ◀───────── greeting: one line, after any output of the login shell
 *     JOB, in pieces ───────────────────────▶ which hosts are yours, what to run
 *                                  ◀───────── READY or FAILED, once for every host
 *     STAGE, in pieces ─────────────────────▶ (--stage) the manifest: files for every host
 *                                  ◀───────── NEED, in pieces: chunks that a host does not have yet
 *     PIECE ... ────────────────────────────▶ bytes of a chunk, to the hosts below that need them
 *                                  ◀───────── STAGING now and then, STAGED at last
 *     SERVE (one host) ─────────────────────▶ open the rendezvous
 *                                  ◀───────── SERVING its address
 *     GO ───────────────────────────────────▶ start this host's ctrun with that address
 *                                  ◀───────── STARTED, OUTPUT, WORDS ..., perhaps SAVING, at last ENDED or LOST
 *     SIGNAL ───────────────────────────────▶ to every ctrun
 *     (end of file) ────────────────────────▶ the process above is gone: kill everything at once
 *
 * Messages are frames of wire/frame.h with kinds of their own; all have one layout. Pure. */
#pragma once

#include <string.h>

#include "worker_sdk/wire/frame.h"

/* The line has the version: programs of different versions cannot talk to each other. */
#define SSH_GREETING "CTRUN-RELAY 4\n"

enum ssh_kind {
    SSH_JOB = 64, /* data: a piece; code: 1 when it is the last */
    SSH_SERVE = 65,
    SSH_GO = 66,     /* data: the endpoint; empty: as on the command line */
    SSH_SIGNAL = 67, /* code: the signal */
    SSH_STAGE = 68,  /* data: a piece of a manifest; code: 1 when it is the last */
    SSH_PIECE = 69,  /* data: see stage_piece.h */
    SSH_READY = 80,
    SSH_SERVING = 81, /* data: the endpoint */
    SSH_FAILED = 82,  /* before GO. code: CTRUN_E_*; data: why */
    SSH_OUTPUT = 83,  /* code: 1 stdout, 2 stderr; data: lines, or a piece of one */
    SSH_WORDS = 84,   /* code: level; data: one message of the launcher */
    SSH_STARTED = 85, /* the host's first round has begun */
    SSH_ENDED = 86,   /* code: exit code; data: one byte if it is the run's code, two if
                       * it is, though other hosts end with 0 */
    SSH_LOST = 87,    /* after READY. data: why */
    SSH_NEED = 88,    /* data: runs of chunks (stage_set.h); code: 1 in the last */
    SSH_STAGING = 89, /* data: u64 bytes checked or received so far; a heartbeat */
    SSH_STAGED = 90,
    /* no worker runs there, and its ctrun writes held checkpoints before it ends; code: for so many seconds at most */
    SSH_SAVING = 91,
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

/* With a text, borrowed, as its data. */
static inline struct ssh_message ssh_message_of_text(enum ssh_kind kind, uint32_t host,
                                                     int32_t code, const char *text)
{
    return (struct ssh_message){kind, host, code, text, strlen(text)};
}

/* Appends the message as one frame. 0, -EMSGSIZE, -ENOBUFS, -ENOMEM. */
int ssh_message_encode(struct ct_buf *out, const struct ssh_message *message);
/* 0, or -EBADMSG: malformed, or of an unknown kind. */
int ssh_message_decode(const struct ct_frame *frame, struct ssh_message *out);
