/* SPDX-License-Identifier: Apache-2.0 */
/* One question to the agent of a run, through its socket. */
#pragma once

#include <limits.h>

#include "agent/control/ctl_dir.h"
#include "launcher/report/json_status.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/wire/message.h"

#define CTL_ASK_MALFORMED "the agent sent a malformed answer"

enum {
    CTL_ASK_LIMIT_MS = 10000, /* an agent may be stopped or swapped out */
    /* one unfinished frame, and one recv() */
    CTL_ASK_IN_MAX_BYTES = 2 * (CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES),
    CTL_ASK_TEXT_MAX_BYTES = 32 * 1024 * 1024,
};

struct ctl_run {
    char dir[PATH_MAX];
    char name[CTL_DIR_NAME_MAX]; /* of the socket in dir */
    uid_t uid;                   /* owner of the run */
    char *json;                  /* the agent's status; owned */
    struct json_status status;
};

extern const struct ct_ctl_request ctl_ask_status;

/* Sends a request; appends the answer's JSON to text. 0 or a code. */
int ctl_run_ask(const struct ctl_run *run, const struct ct_ctl_request *request,
                struct ct_buf *text, struct ctrun_error *err);
/* Asks for the status again. 0 or a code. */
int ctl_run_refresh(struct ctl_run *run, struct ctrun_error *err);

/* The same in parts, for many agents at once: a connection on which the request was sent, or a code. */
int ctl_ask_begin(const struct ctl_run *run, const struct ct_ctl_request *request,
                  struct ctrun_error *err);
/* Takes what has come. `room` is a buffer. 1: the answer is complete; 0: more will come; or a code. */
int ctl_ask_read(int fd, struct ct_buf *in, union ct_message_room *room,
                 struct ct_buf *text, struct ctrun_error *err);
/* Replaces control characters of a whole answer by '?', and puts a NUL after it. 0 or a code. */
int ctl_ask_make_plain(struct ct_buf *text, struct ctrun_error *err);
/* Takes the status out of an answer. After a failure `run` is unchanged, which `logs -f` needs. */
int ctl_ask_take_status(struct ctl_run *run, const struct ct_buf *text,
                        struct ctrun_error *err);
/* Puts the run's name before an error. */
void ctl_ask_name(struct ctrun_error *err, const struct ctl_run *run);
