/* SPDX-License-Identifier: Apache-2.0 */
/* One ssh connection of a --hosts run. It leads to the first host of a part of the list; that host
 * starts the rest of the part.
 *
 *     CALLING ──greeting──> GREETED ──READY of its first host──> OPEN
 *        └── timeout, ssh ends, malformed message ──┴──────────────┴──> over
 *
 * When it is over, on_over is called once, from ssh_conn_reap() only. */
#pragma once

#include <sys/types.h>

#include "agent/loop/loop.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"
#include "launcher/stage/stage_set.h"
#include "worker_sdk/base/list.h"

enum {
    SSH_TEXT_MAX = 1024
};

struct ssh_conn {
    struct ct_list node;
    uint32_t first;
    uint32_t count;
    bool is_open;
    bool is_full;           /* send no more until on_room */
    struct stage_set needs; /* chunks that its hosts need */
    const struct ssh_conn_options *options;
    /* Private to ssh_conn.c. */
    pid_t pid;
    struct loop_watch *input; /* NULL: closed */
    struct loop_watch *out;
    struct loop_watch *err;
    struct loop_timer *deadline;
    struct ct_buf to;   /* frames to send */
    struct ct_buf from; /* received, not yet a whole frame */
    bool is_greeted;
    bool is_paused;
    bool has_ended_output;   /* end-of-file on its standard output */
    char why[SSH_TEXT_MAX];  /* why the connection ended */
    char last[SSH_TEXT_MAX]; /* the last line on ssh's stderr */
    int code;                /* CTRUN_E_* of `why` */
};

struct ssh_conn_options {
    struct loop *loop;
    const struct ssh_job *job; /* borrowed */
    void *context;
    /* A message from a host of this connection. */
    void (*on_message)(void *context, const struct ssh_message *message);
    /* ssh has ended: nothing more will come. `why` is one line. May free the connection. */
    void (*on_over)(void *context, struct ssh_conn *conn, int code, const char *why);
    /* The connection is not full any more. */
    void (*on_room)(void *context);
};

/* Calls hosts [first, first + count). NULL when ssh cannot be started. Keeps a pointer to
 * options. */
struct ssh_conn *ssh_conn_open(const struct ssh_conn_options *options, uint32_t first,
                               uint32_t count, struct ctrun_error *err);
void ssh_conn_send(struct ssh_conn *conn, const struct ssh_message *message);
/* Reads nothing while paused. */
void ssh_conn_pause(struct ssh_conn *conn, bool is_paused);
/* Checks whether ssh has ended; to be called after a SIGCHLD. */
void ssh_conn_reap(struct ssh_conn *conn);
/* Kills ssh if it still runs. Frees `conn`. */
void ssh_conn_close(struct ssh_conn *conn);
