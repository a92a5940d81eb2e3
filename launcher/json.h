/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of the launcher, the only door to cJSON here: error files read and written, lines
 * of the file timer read, torchrun's events written.
 *
 * A worker that fails may leave {"message": {"message": "ValueError: boom",
 * "extraInfo": {"py_callstack": "...", "timestamp": "1795255662"}}}, or the flat form
 * with "message" a text and "timestamp" beside it. Whatever is wrong with such a file,
 * the launcher goes on: what a failing program wrote last is often broken. */
#ifndef LAUNCHER_JSON_H
#define LAUNCHER_JSON_H

#include <stdio.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/agent.h"
#include "worker_sdk/base/error.h"

enum {
    JSON_FILE_MAX_BYTES = 1 << 20
};

struct json_error_file {
    char *message;     /* "ValueError: boom"; owned */
    char *callstack;   /* NULL when absent; owned */
    int64_t timestamp; /* seconds since 1970; 0 when absent */
};

/* True when brackets nest deeper than `max`, those in strings counted, too: asked before cJSON is,
 * which parses by recursion. Pure. */
bool json_is_too_deep(const char *text, size_t length, int max);

/* 1 when read, 0 when there is none, -EBADMSG when it is no error file (or empty),
 * -EFBIG, -errno. deinit accepts a zeroed one. */
int json_error_file_read(const char *path, struct json_error_file *out);
void json_error_file_deinit(struct json_error_file *file);

/* The launcher's own error file (a scheduler named it): a copy of a worker's with
 * message.errorCode added where message is an object. 0 or a code. */
int json_error_file_copy(const char *from, const char *to, int error_code,
                         struct ctrun_error *err);
/* The same for trouble of its own, in the first form. */
int json_error_file_write(const char *path, const char *message,
                          struct ctrun_error *err);

/* {"version": 1, "pid": 812, "scope_id": "step", "expiration_time": 1795255662.5,
 * "signal": 9}, as torch.distributed.elastic.timer writes it. 0 or -EBADMSG. */
int json_timer_read(const char *line, size_t length, struct agent_timer *out);

/* One event as torchrun's console handler prints it; see launcher/torch_events.h. */
struct json_torch_event {
    const char *state; /* "START" */
    const char *run_id;
    const char *role;
    const char *host;
    const char *backend;
    const char *entry_point;
    const char *error;    /* NULL, or what the agent failed of */
    int group_rank;       /* -1: none yet */
    int group_world_size; /* the same */
    uint32_t restarts;
    uint64_t total_s;
    double duration_ms; /* < 0: not measured */
    bool is_worker;     /* what follows is a worker's */
    int pid;
    int rank;
    int local_rank;
    int role_rank;
    int role_world_size;
    bool has_failed;
    int exit_code;          /* as Python has it: negative for signals */
    const char *error_file; /* path; may be empty */
};

/* Owned by the caller; NULL when memory is short. */
char *json_torch_event_format(const struct json_torch_event *event);

/* Writes text with its quotes; "?" in place of more than 256 KiB. */
void json_print_text(FILE *out, const char *text);

#endif
