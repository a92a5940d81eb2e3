/* SPDX-License-Identifier: Apache-2.0 */
/* The runs of this machine, found through their sockets, and one question to one of them. */
#pragma once

#include <limits.h>

#include "agent/control/ctl_dir.h"
#include "launcher/ctl/ctl.h"
#include "launcher/report/json_status.h"
#include "worker_sdk/base/buf.h"

struct ctl_run {
    char dir[PATH_MAX];
    char name[CTL_DIR_NAME_MAX]; /* of its socket in dir */
    uid_t uid;                   /* whose it is */
    char *json;                  /* as the agent told it; owned */
    struct json_status status;
};

struct ctl_runs {
    struct ctl_run *list; /* owned */
    size_t count;
};

/* Asks every run that --run and --user (where the verb has them) let through. Returns the
 * number of runs, or a code; one that does not answer is reported on stderr and left out. */
int ctl_runs_find(struct ctl_runs *out, const struct ctl_call *call,
                  struct ctrun_error *err);
/* The same, and it is an error when there is not exactly one. */
int ctl_runs_find_one(struct ctl_runs *out, const struct ctl_call *call,
                      struct ctrun_error *err);
void ctl_runs_deinit(struct ctl_runs *runs);
/* Asks the status again. 0 or a code. */
int ctl_run_refresh(struct ctl_run *run, struct ctrun_error *err);
/* Asks; the answer's JSON is appended to text. 0 or a code. */
int ctl_run_ask(const struct ctl_run *run, const struct ct_ctl_request *request,
                struct ct_buf *text, struct ctrun_error *err);

/* Puts --reason, else "ctrunctl VERB", into the request. 0 or CTRUN_E_USAGE. */
int ctl_run_take_reason(struct ct_ctl_request *request, const struct ctl_call *call,
                        struct ctrun_error *err);
/* Asks the one run that is meant; prints its answer with --json, else "`whose`run ID `said`"
 * unless said is NULL. The exit code. */
int ctl_run_do(const struct ctl_call *call, const struct ct_ctl_request *request,
               const char *whose, const char *done);

/* Asks the one run that is meant; prints the text of its answer that `key` names, or "run ID: `nothing`"
 * where it is empty; with --json the whole answer. The exit code. */
int ctl_run_show(const struct ctl_call *call, const struct ct_ctl_request *request,
                 const char *key, const char *nothing);
