/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of PyTorch's own tools: lines of the file timer read, torchrun's events written. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/watch/file_timer.h"

/* {"version": 1, "pid": 812, "scope_id": "step", "expiration_time": 1795255662.5,
 * "signal": 9}, as torch.distributed.elastic.timer writes it. 0 or -EBADMSG. */
int json_torch_timer_read(const char *line, size_t length, struct agent_timer *out);

/* One event as torchrun's console handler prints it; see launcher/run/torch_events.h. */
struct json_torch_event {
    const char *state; /* "START" */
    const char *run_id;
    const char *role;
    const char *host;
    const char *backend;
    const char *entry_point;
    const char *error;    /* NULL, or the agent's error */
    int group_rank;       /* -1: none yet */
    int group_world_size; /* -1: none yet */
    uint32_t restarts;
    uint64_t total_s;
    double duration_ms; /* < 0: not measured */
    bool is_worker;     /* the fields below are set */
    int pid;
    int rank;
    int local_rank;
    int role_rank;
    int role_world_size;
    bool has_failed;
    int exit_code;          /* as Python has it: negative for signals */
    const char *error_file; /* path; may be empty */
    bool redacts;           /* the error file's content */
};

/* Owned by the caller; NULL when memory is short. */
char *json_torch_event_format(const struct json_torch_event *event);
