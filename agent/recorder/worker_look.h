/* SPDX-License-Identifier: Apache-2.0 */
/* The calls in which workers are, read from outside on a separate thread, because the reads may be slow or hang:
 * the flight recorder of their torch, and the place of their Python.
 *
 *     worker_look_start() ── the loop runs on ── done(), once: with all results, or those so far
 *              └── worker_look_cancel(): done is not called */
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
    pid_t pid;         /* set by the caller */
    int local_rank;    /* set by the caller */
    bool is_stopped;   /* set by the caller: its recorder is not asked */
    bool wants_calls;  /* set by the caller: only `calls` is read, from its recorder */
    bool is_seen;      /* the fields below are results of this look */
    bool has_recorder; /* its recorder has answered */
    struct recorder_view view;
    struct live_place place;
    char *dump; /* the recorder's answer; owned by the look; NULL: none, or too large */
    struct straggler_call *calls; /* owned by the look */
    int call_count;
    uint64_t took_ms; /* time until its recorder had answered; 0: no answer */
};

/* Takes ownership of `list` (heap); `folder` is borrowed until the look ends. done is called on the
 * loop, gets the list, borrowed for the call, and may start the next look. While an earlier thread
 * reads files of a worker and does not return, the place of that worker is not found; of no worker while there are
 * several such threads. Recorders are asked. NULL: out
 * of memory or thread, or an earlier thread still asks recorders; list is freed. */
struct worker_look *
worker_look_start(struct loop *loop, const struct recorder_folder *folder,
                  struct worker_seen *list, int count,
                  void (*done)(void *context, struct worker_seen *list, int count),
                  void *context);
/* NULL is fine. */
void worker_look_cancel(struct worker_look *look);
