/* SPDX-License-Identifier: Apache-2.0 */
/* Events: one JSON object a line (NDJSON), for tests and tools.
 *
 *     ct_event_emit("worker_ended", CT_INT("rank", rank), CT_STR("cause", "signal"));
 *
 * Every line has "event", "version", "time_ns" (since 1970) and "pid", and at its end "run_id" and "host" of a process that
 * has given them, unless the event has a field of that name. The destination is a file
 * opened for appending (CTRUN_EVENTS names it); each event is one write(), so that several
 * processes may share it. Without a destination the calls do nothing. An event longer than
 * CT_EVENT_MAX_BYTES is dropped and counted. Any thread may emit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/bytes.h"

enum {
    CT_EVENT_MAX_BYTES = 4096,
    CT_EVENT_VERSION = 1 /* grows when a field changes its meaning or goes away */
};

struct ct_event {
    bool is_wanted; /* the destination was open at the begin */
    bool has_run_id, has_host;
    struct ct_writer out;
    uint8_t line[CT_EVENT_MAX_BYTES];
};

/* Opens `path` for appending; replaces an earlier destination. Never blocks. 0 or a negative errno:
 * -ENXIO is a pipe that nobody reads. */
int ct_event_open(const char *path);
void ct_event_close(void);
/* Of this process, for all events that follow; kept. Before other threads emit. */
void ct_event_identify(const char *run_id, const char *host);

struct ct_event_field {
    const char *key;
    const char *text; /* NULL: the number */
    int64_t number;
    bool is_json; /* JSON text, copied unchanged */
};

#define CT_INT(name, value)                                                            \
    ((struct ct_event_field){.key = (name), .number = (int64_t)(value)})
#define CT_STR(name, value) ((struct ct_event_field){.key = (name), .text = (value)})
#define CT_RAW(name, value)                                                            \
    ((struct ct_event_field){.key = (name), .text = (value), .is_json = true})

/* An event with at least one field. */
#define ct_event_emit(name, ...)                                                       \
    ct_event_emit_fields(name, (const struct ct_event_field[]){__VA_ARGS__, {0}})
void ct_event_emit_fields(const char *name, const struct ct_event_field *fields);

/* The same in parts, for an event that does not always have the same fields. */
void ct_event_begin(struct ct_event *event, const char *name);
void ct_event_int(struct ct_event *event, const char *key, int64_t value);
/* Any bytes: control characters and quotes are escaped, bytes that are no UTF-8 replaced. */
void ct_event_str(struct ct_event *event, const char *key, const char *text);
/* `json` is copied unchanged: the caller must pass valid JSON. */
void ct_event_raw(struct ct_event *event, const char *key, const char *json);
void ct_event_end(struct ct_event *event);

/* Appends text as a JSON string, quotes included, to out: for other writers of JSON. */
void ct_json_write_str(struct ct_writer *out, const char *text);
/* The same for a buf. 0; -ENOBUFS, -ENOMEM: it is unchanged. */
int ct_json_append_str(struct ct_buf *out, const char *text);
