/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/event.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

/* Any thread writes each event with one write() to a file opened with O_APPEND: lines never mix,
 * and no lock is needed. The descriptor must not be replaced or closed while another thread may
 * write: the number could then be another file's. */
static atomic_int event_fd = -1;
static const char *own_run_id, *own_host; /* NULL: not given */

int ct_event_open(const char *path)
{
    /* With O_NONBLOCK a pipe without a reader fails with ENXIO, and a full pipe never blocks the
     * run. */
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);

    if (fd < 0)
        return -errno;
    fd = atomic_exchange(&event_fd, fd);
    if (fd >= 0)
        (void)close(fd); /* the old destination; nothing is buffered */
    return 0;
}

void ct_event_close(void)
{
    int fd = atomic_exchange(&event_fd, -1);

    if (fd >= 0)
        (void)close(fd);
}

void ct_event_identify(const char *run_id, const char *host)
{
    own_run_id = run_id;
    own_host = host;
}

void ct_json_write_str(struct ct_writer *out, const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    char escape[8];
    size_t length;

    ct_write_text(out, "\"");
    for (; *at; at += length) {
        if (ct_utf8_decode(at, &length) == UINT32_MAX) {
            ct_write_text(out, "\\ufffd");
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            (void)ct_format(escape, sizeof escape, "\\%c", *at);
            ct_write_text(out, escape);
        } else if (*at < 0x20 || *at == 0x7f) {
            (void)ct_format(escape, sizeof escape, "\\u%04x", *at);
            ct_write_text(out, escape);
        } else {
            ct_write_raw(out, at, length);
        }
    }
    ct_write_text(out, "\"");
}

/* The first size suffices for text with little to escape; an escaped text has six times its length at most. */
int ct_json_append_str(struct ct_buf *out, const char *text)
{
    const size_t length = strlen(text);
    const size_t rooms[] = {length + length / 2 + 64, 6 * length + 2};
    struct ct_writer writer;
    uint8_t *at;
    int rc = -EMSGSIZE;

    for (int i = 0; rc == -EMSGSIZE && i < 2; i++) {
        if ((rc = ct_buf_reserve(out, rooms[i], &at)) < 0)
            return rc;
        ct_writer_init(&writer, at, rooms[i]);
        ct_json_write_str(&writer, text);
        rc = ct_write_end(&writer);
    }
    ct_buf_commit(out, writer.length); /* the second size is enough for any text */
    return 0;
}

static void write_key(struct ct_event *event, const char *key)
{
    event->has_run_id |= strcmp(key, "run_id") == 0;
    event->has_host |= strcmp(key, "host") == 0;
    ct_write_text(&event->out, event->out.length > 1 ? "," : "");
    ct_json_write_str(&event->out, key);
    ct_write_text(&event->out, ":");
}

void ct_event_begin(struct ct_event *event, const char *name)
{
    event->is_wanted = atomic_load(&event_fd) >= 0;
    if (!event->is_wanted)
        return;
    event->has_run_id = event->has_host = false;
    ct_writer_init(&event->out, event->line, sizeof event->line);
    ct_write_text(&event->out, "{");
    ct_event_str(event, "event", name);
    ct_event_int(event, "version", CT_EVENT_VERSION);
    ct_event_int(event, "time_ns", (int64_t)ct_wall_ns());
    ct_event_int(event, "pid", getpid());
}

void ct_event_raw(struct ct_event *event, const char *key, const char *json)
{
    if (!event->is_wanted)
        return;
    write_key(event, key);
    ct_write_text(&event->out, json);
}

void ct_event_int(struct ct_event *event, const char *key, int64_t value)
{
    char text[24];

    if (!event->is_wanted)
        return;
    (void)ct_format(text, sizeof text, "%" PRId64, value);
    ct_event_raw(event, key, text);
}

void ct_event_str(struct ct_event *event, const char *key, const char *text)
{
    if (!event->is_wanted)
        return;
    write_key(event, key);
    ct_json_write_str(&event->out, text);
}

void ct_event_end(struct ct_event *event)
{
    int fd = atomic_load(&event_fd);

    if (!event->is_wanted || fd < 0)
        return;
    if (own_run_id && !event->has_run_id)
        ct_event_str(event, "run_id", own_run_id);
    if (own_host && !event->has_host)
        ct_event_str(event, "host", own_host);
    ct_write_text(&event->out, "}\n");
    if (event->out.bad) {
        ct_warn("event dropped reason=too_long limit=%d", CT_EVENT_MAX_BYTES);
        return;
    }
    if (write(fd, event->line, event->out.length) < 0)
        ct_debug("event lost errno=%d", errno); /* a full disk must not stop training */
}

void ct_event_emit_fields(const char *name, const struct ct_event_field *fields)
{
    struct ct_event event;

    ct_event_begin(&event, name);
    for (; fields->key; fields++)
        if (!fields->text)
            ct_event_int(&event, fields->key, fields->number);
        else if (fields->is_json)
            ct_event_raw(&event, fields->key, fields->text);
        else
            ct_event_str(&event, fields->key, fields->text);
    ct_event_end(&event);
}
