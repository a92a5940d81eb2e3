/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output/console_dedup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/limits.h"
#include "agent/output/line_dedup.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

struct console_dedup {
    struct console_dedup_options options;
    struct console_source source;
    struct line_dedup *dedup;
    struct loop_timer *timer; /* the oldest line's time */
    struct ct_list waiting;   /* parts that wait for room in the queue */
    bool is_pushing;
    bool is_ending; /* lines do not wait for equal ones any more */
    int parts;
    int *streams; /* by worker: its parts */
    size_t words; /* of a set of workers */

    /* The workers and prefix of the last line: mostly the next line has the same. */
    uint64_t *last;
    bool is_last_teed;
    char *prefix; /* NULL: none yet */
};

static void on_room_or_time(void *context);

struct console_dedup *console_dedup_open(const struct console_dedup_options *options)
{
    struct console_dedup *console_dedup = ct_zalloc(sizeof *console_dedup);

    if (!console_dedup)
        return NULL;
    console_dedup->options = *options;
    console_dedup->words = ((size_t)options->workers + 63) / 64;
    ct_list_init(&console_dedup->waiting);
    console_source_init(&console_dedup->source, on_room_or_time, console_dedup);
    console_dedup->dedup = line_dedup_create(
        options->workers, CONSOLE_DEDUP_WAIT_MAX_BYTES, CONSOLE_DEDUP_DELAY_MS);
    console_dedup->timer = loop_timer_open(options->loop, on_room_or_time,
                                           console_dedup);
    console_dedup->streams = ct_zalloc_array((size_t)options->workers,
                                             sizeof *console_dedup->streams);
    console_dedup->last = ct_zalloc_array(console_dedup->words,
                                          sizeof *console_dedup->last);
    if (!console_dedup->dedup || !console_dedup->timer || !console_dedup->streams ||
        !console_dedup->last) {
        console_dedup_close(console_dedup);
        return NULL;
    }
    return console_dedup;
}

void console_dedup_close(struct console_dedup *console_dedup)
{
    if (!console_dedup)
        return;
    console_source_deinit(&console_dedup->source);
    line_dedup_destroy(console_dedup->dedup);
    loop_timer_close(console_dedup->timer);
    free(console_dedup->streams);
    free(console_dedup->last);
    free(console_dedup->prefix);
    free(console_dedup);
}

/* ---- Lines ------------------------------------------------------------------------------ */

static const char *prefix_of(struct console_dedup *console_dedup,
                             const struct line_dedup_line *line)
{
    const bool is_teed = line->kind != 0;
    const size_t size = console_dedup->words * sizeof *console_dedup->last;

    if (!console_dedup->prefix || console_dedup->is_last_teed != is_teed ||
        memcmp(console_dedup->last, line->workers, size) != 0) {
        free(console_dedup->prefix);
        console_dedup->prefix = console_dedup->options.prefix(
            console_dedup->options.context, line->workers, is_teed);
        memcpy(console_dedup->last, line->workers, size);
        console_dedup->is_last_teed = is_teed;
    }
    return console_dedup->prefix ? console_dedup->prefix : "";
}

static void print(struct console_dedup *console_dedup,
                  const struct line_dedup_line *line)
{
    const char *prefix = prefix_of(console_dedup, line);
    const size_t length = strlen(prefix);
    const char last = line->length > 0 ? line->text[line->length - 1] : '\0';
    const bool has_end = last == '\n' || last == '\r';
    uint8_t *at;

    if (ct_buf_reserve(&console_dedup->source.queue, length + line->length + 1, &at) <
        0) {
        ct_warn("output lost bytes=%zu: out of memory", line->length);
        return;
    }
    memcpy(at, prefix, length);
    memcpy(at + length, line->text, line->length);
    /* so that an unfinished line does not run into the next one */
    at[length + line->length] = '\n';
    ct_buf_commit(&console_dedup->source.queue, length + line->length + !has_end);
}

static bool is_full(const struct console_dedup *console_dedup)
{
    return ct_buf_length(&console_dedup->source.queue) >= OUTPUT_QUEUE_HIGH_BYTES;
}

static const struct line_dedup_line *
next_line(const struct console_dedup *console_dedup)
{
    return is_full(console_dedup) ? NULL
                                  : line_dedup_peek(console_dedup->dedup, ct_now_ms(),
                                                    console_dedup->is_ending);
}

/* One part at a time: on_room() may close any part, or fill the queue again. */
static void wake_parts(struct console_dedup *console_dedup)
{
    while (!ct_list_is_empty(&console_dedup->waiting) && !is_full(console_dedup)) {
        struct console_dedup_part *part = ct_list_entry(
            console_dedup->waiting.next, struct console_dedup_part, node);

        ct_list_remove(&part->node);
        part->on_room(part->context);
    }
}

static void set_timer(struct console_dedup *console_dedup)
{
    const uint64_t wake_ms = line_dedup_wake_ms(console_dedup->dedup);
    const uint64_t now_ms = ct_now_ms();

    if (wake_ms != UINT64_MAX && !is_full(console_dedup)) /* else on_room() continues */
        loop_timer_set(console_dedup->timer, wake_ms > now_ms ? wake_ms - now_ms : 0);
}

void console_dedup_push(struct console_dedup *console_dedup)
{
    const struct line_dedup_line *line;

    if (console_dedup->is_pushing)
        return; /* the console called on_room() in here */
    console_dedup->is_pushing = true;
    do {
        while ((line = next_line(console_dedup))) {
            print(console_dedup, line);
            line_dedup_pop(console_dedup->dedup);
        }
        console_push(console_dedup->options.console, &console_dedup->source);
    } while (next_line(console_dedup));
    console_dedup->is_pushing = false;
    set_timer(console_dedup);
    wake_parts(console_dedup);
}

static void on_room_or_time(void *context)
{
    console_dedup_push(context);
}

void console_dedup_flush(struct console_dedup *console_dedup, bool is_end)
{
    if (!console_dedup)
        return;
    console_dedup->is_ending = true;
    console_dedup_push(console_dedup);
    console_dedup->is_ending = is_end;
}

/* ---- Parts ------------------------------------------------------------------------------ */

static void count(struct console_dedup *console_dedup)
{
    int expected = 0;

    for (int i = 0; i < console_dedup->options.workers; i++)
        expected += console_dedup->streams[i] > 0;
    line_dedup_set_expected(console_dedup->dedup, expected);
}

void console_dedup_join(struct console_dedup *console_dedup,
                        struct console_dedup_part *part)
{
    ct_list_init(&part->node);
    part->console_dedup = console_dedup;
    if (console_dedup->parts++ == 0) {
        free(console_dedup->prefix); /* ranks may have changed in a new round */
        console_dedup->prefix = NULL;
    }
    console_dedup->streams[part->worker]++;
    count(console_dedup);
}

void console_dedup_leave(struct console_dedup_part *part)
{
    struct console_dedup *console_dedup = part->console_dedup;

    if (!console_dedup)
        return;
    ct_list_remove(&part->node);
    part->console_dedup = NULL;
    console_dedup->parts--;
    console_dedup->streams[part->worker]--;
    count(console_dedup);
}

/* When too much waits, the oldest line is printed before its time: memory is bounded, and the
 * order stays. */
int console_dedup_add(struct console_dedup_part *part, const char *piece, size_t length)
{
    struct console_dedup *console_dedup = part->console_dedup;
    const uint64_t now_ms = ct_now_ms();
    const struct line_dedup_line *line;
    int rc;

    while ((rc = line_dedup_add(console_dedup->dedup, part->worker, part->is_teed,
                                piece, length, now_ms)) == -ENOBUFS) {
        if (!(line = line_dedup_peek(console_dedup->dedup, now_ms, true)))
            break;
        print(console_dedup, line);
        line_dedup_pop(console_dedup->dedup);
    }
    return rc;
}

bool console_dedup_is_full(struct console_dedup_part *part)
{
    if (!is_full(part->console_dedup))
        return false;
    if (ct_list_is_empty(&part->node))
        ct_list_add(&part->console_dedup->waiting, &part->node);
    return true;
}
