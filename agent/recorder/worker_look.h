/* SPDX-License-Identifier: Apache-2.0 */
/* What workers are in, read from outside on a thread of its own, for what is read may be slow or stuck
 * itself: the flight recorder of their torch, and where their Python is.
 *
 *     worker_look_start() ── the loop runs on ── done(), once: in time, or with what there is by then
 *              └── worker_look_cancel(): done is not called any more */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/loop/loop.h"
#include "agent/recorder/recorder_folder.h"
#include "agent/recorder/recorder_view.h"
#include "agent/watch/live_stack.h"
#include "agent/watch/straggler.h"

struct worker_look;

struct worker_seen {
    pid_t pid;       /* given */
    int local_rank;  /* given */
    bool is_stopped; /* given: its recorder is not asked */
    bool
        wants_calls; /* given: its recorder is asked for `calls`, and nothing else is looked at */
    bool is_seen;      /* what follows is of this look */
    bool has_recorder; /* it has answered */
    struct recorder_view view;
    struct live_place place;
    char *
        dump; /* what it has answered; owned by the look; NULL: nothing, or too much of it */
    struct straggler_call *calls; /* owned by the look */
    int call_count;
    uint64_t took_ms; /* until its recorder had answered; 0: it has not */
};

/* Takes `list` (heap); `folder` is borrowed until it is done. done is called on the loop, gets the list,
 * borrowed for the call, and may start the next one. NULL: no memory or
 * thread, or one that was left is not back yet; list is freed. */
struct worker_look *
worker_look_start(struct loop *loop, const struct recorder_folder *folder,
                  struct worker_seen *list, int count,
                  void (*done)(void *context, struct worker_seen *list, int count),
                  void *context);
/* NULL is fine. */
void worker_look_cancel(struct worker_look *look);
