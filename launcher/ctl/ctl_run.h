/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the runs of this machine through their sockets, and sends requests to their agents. */
#pragma once

#include "launcher/ctl/ctl.h"
#include "launcher/ctl/ctl_ask.h"

struct ctl_runs {
    struct ctl_run *list; /* owned */
    size_t count;
};

/* Asks every run that --run and --user (if the verb has them) select. Returns the number of
 * runs, or a code. A run that does not answer is reported on stderr and left out. */
int ctl_runs_find(struct ctl_runs *out, const struct ctl_call *call,
                  struct ctrun_error *err);
/* As ctl_runs_find(), but an error when there is not exactly one run. */
int ctl_runs_find_one(struct ctl_runs *out, const struct ctl_call *call,
                      struct ctrun_error *err);
void ctl_runs_deinit(struct ctl_runs *runs);

/* Puts --reason, else "ctrunctl VERB", into the request. 0 or CTRUN_E_USAGE. */
int ctl_run_take_reason(struct ct_ctl_request *request, const struct ctl_call *call,
                        struct ctrun_error *err);
/* Sends a request to the selected run; prints its answer with --json, else "`whose`run ID `done`"
 * unless done is NULL. The exit code. */
int ctl_run_do(const struct ctl_call *call, const struct ct_ctl_request *request,
               const char *whose, const char *done);

/* Sends a request to the selected run; prints the field `key` of its answer, or "run ID:
 * `nothing`" if that is empty; with --json the whole answer. If there is no such run, `absent`
 * is added to the error. The exit code. */
int ctl_run_show(const struct ctl_call *call, const struct ct_ctl_request *request,
                 const char *key, const char *nothing, const char *absent);
