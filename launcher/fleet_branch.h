/* SPDX-License-Identifier: Apache-2.0 */
/* One ssh connection of a --hosts run: to the first host of a part of the list, which looks
 * after the rest of that part itself.
 *
 *     CALLING ──greeting──> GREETED ──READY of its first host──> OPEN
 *        └──── time is up, ssh ends, nonsense ──────┴──────────────┴──> over
 *
 * When it is over, on_over is called once, from fleet_branch_reap() only. */
#ifndef LAUNCHER_FLEET_BRANCH_H
#define LAUNCHER_FLEET_BRANCH_H

#include <sys/types.h>

#include "agent/loop.h"
#include "launcher/fleet_job.h"
#include "launcher/fleet_message.h"
#include "launcher/stage_set.h"
#include "worker_sdk/base/list.h"

enum {
    FLEET_TEXT_MAX = 1024
};

struct fleet_branch {
    struct ct_list node;
    uint32_t first;
    uint32_t count;
    bool is_open;
    bool is_full; /* so much waits for it that no more should be given; see on_room */
    struct stage_set needs; /* of all its hosts; the part's */
    const struct fleet_branch_options *options;
    /* The branch's own. */
    pid_t pid;
    struct loop_watch *input; /* NULL: closed */
    struct loop_watch *out;
    struct loop_watch *err;
    struct loop_timer *deadline;
    struct ct_buf to;   /* frames for it */
    struct ct_buf from; /* what came and is no whole frame yet */
    bool is_greeted;
    bool is_paused;
    char why[FLEET_TEXT_MAX];  /* we ended it, because */
    char last[FLEET_TEXT_MAX]; /* ssh's last words */
    int code;                  /* of CTRUN_E_*, that goes with why */
};

struct fleet_branch_options {
    struct loop *loop;
    const struct fleet_job *job; /* kept */
    void *context;
    /* Of a host of this branch. */
    void (*on_message)(void *context, const struct fleet_message *message);
    /* ssh has ended: nothing more will come. `why` is one line. May free the branch. */
    void (*on_over)(void *context, struct fleet_branch *branch, int code,
                    const char *why);
    /* The branch is full no more. */
    void (*on_room)(void *context);
};

/* Calls hosts [first, first + count). NULL when ssh cannot even be started. options is kept. */
struct fleet_branch *fleet_branch_open(const struct fleet_branch_options *options,
                                       uint32_t first, uint32_t count,
                                       struct ctrun_error *err);
void fleet_branch_send(struct fleet_branch *branch,
                       const struct fleet_message *message);
/* Reads nothing while paused. */
void fleet_branch_pause(struct fleet_branch *branch, bool is_paused);
/* Looks whether ssh has ended; to be called after a SIGCHLD. */
void fleet_branch_reap(struct fleet_branch *branch);
/* Kills ssh when it is there still. */
void fleet_branch_close(struct fleet_branch *branch);

#endif
