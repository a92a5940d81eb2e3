/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/chorus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/collapse.h"
#include "agent/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

struct chorus {
    struct chorus_options options;
    struct console_source source;
    struct collapse *collapse;
    struct loop_timer *timer; /* the oldest line's time */
    struct ct_list waiting;   /* parts that found no room */
    bool is_pushing;
    bool is_ending; /* nothing waits for its like any more */
    int parts;
    int *streams; /* by worker: its parts */
    size_t words; /* of a set of workers */

    /* The prefix of the last line: nearly always the next one's, too. */
    uint64_t *last;
    bool is_last_teed;
    char *prefix; /* NULL: none yet */
};

static void on_room(void *context);
static void on_time(void *context);

struct chorus *chorus_open(const struct chorus_options *options)
{
    struct chorus *chorus = ct_zalloc(sizeof *chorus);

    if (!chorus)
        return NULL;
    chorus->options = *options;
    chorus->words = ((size_t)options->workers + 63) / 64;
    ct_list_init(&chorus->waiting);
    console_source_init(&chorus->source, on_room, chorus);
    chorus->collapse = collapse_create(options->workers, CHORUS_WAIT_MAX_BYTES,
                                       CHORUS_DELAY_MS);
    chorus->timer = loop_timer_open(options->loop, on_time, chorus);
    chorus->streams = ct_zalloc_array((size_t)options->workers,
                                      sizeof *chorus->streams);
    chorus->last = ct_zalloc_array(chorus->words, sizeof *chorus->last);
    if (!chorus->collapse || !chorus->timer || !chorus->streams || !chorus->last) {
        chorus_close(chorus);
        return NULL;
    }
    return chorus;
}

void chorus_close(struct chorus *chorus)
{
    if (!chorus)
        return;
    console_source_deinit(&chorus->source);
    collapse_destroy(chorus->collapse);
    loop_timer_close(chorus->timer);
    free(chorus->streams);
    free(chorus->last);
    free(chorus->prefix);
    free(chorus);
}

/* ---- Lines ------------------------------------------------------------------------------ */

static const char *prefix_of(struct chorus *chorus, const struct collapse_line *line)
{
    const bool is_teed = line->kind != 0;
    const size_t size = chorus->words * sizeof *chorus->last;

    if (!chorus->prefix || chorus->is_last_teed != is_teed ||
        memcmp(chorus->last, line->workers, size) != 0) {
        free(chorus->prefix);
        chorus->prefix = chorus->options.prefix(chorus->options.context, line->workers,
                                                is_teed);
        memcpy(chorus->last, line->workers, size);
        chorus->is_last_teed = is_teed;
    }
    return chorus->prefix ? chorus->prefix : "";
}

static void print(struct chorus *chorus, const struct collapse_line *line)
{
    const char *prefix = prefix_of(chorus, line);
    const size_t length = strlen(prefix);
    const char last = line->length > 0 ? line->text[line->length - 1] : '\0';
    const bool has_end = last == '\n' || last == '\r';
    uint8_t *at;

    if (ct_buf_reserve(&chorus->source.queue, length + line->length + 1, &at) < 0) {
        ct_warn("output lost bytes=%zu: out of memory", line->length);
        return;
    }
    memcpy(at, prefix, length);
    memcpy(at + length, line->text, line->length);
    at[length + line->length] = '\n'; /* what never ended must not run into the next */
    ct_buf_commit(&chorus->source.queue, length + line->length + !has_end);
}

static bool is_full(const struct chorus *chorus)
{
    return ct_buf_length(&chorus->source.queue) >= OUTPUT_QUEUE_HIGH_BYTES;
}

static const struct collapse_line *next_line(const struct chorus *chorus)
{
    return is_full(chorus)
               ? NULL
               : collapse_peek(chorus->collapse, ct_now_ms(), chorus->is_ending);
}

/* One at a time: each may close any of them, or fill the queue again. */
static void wake_parts(struct chorus *chorus)
{
    while (!ct_list_is_empty(&chorus->waiting) && !is_full(chorus)) {
        struct chorus_part *part = ct_list_entry(chorus->waiting.next,
                                                 struct chorus_part, node);

        ct_list_remove(&part->node);
        part->on_room(part->context);
    }
}

static void set_timer(struct chorus *chorus)
{
    const uint64_t wake_ms = collapse_wake_ms(chorus->collapse);
    const uint64_t now_ms = ct_now_ms();

    if (wake_ms != UINT64_MAX && !is_full(chorus)) /* else on_room() goes on */
        loop_timer_set(chorus->timer, wake_ms > now_ms ? wake_ms - now_ms : 0);
}

void chorus_push(struct chorus *chorus)
{
    const struct collapse_line *line;

    if (chorus->is_pushing)
        return; /* the console called on_room() in here */
    chorus->is_pushing = true;
    do {
        while ((line = next_line(chorus))) {
            print(chorus, line);
            collapse_pop(chorus->collapse);
        }
        console_push(chorus->options.console, &chorus->source);
    } while (next_line(chorus));
    chorus->is_pushing = false;
    set_timer(chorus);
    wake_parts(chorus);
}

static void on_time(void *context)
{
    chorus_push(context);
}

static void on_room(void *context)
{
    chorus_push(context);
}

void chorus_flush(struct chorus *chorus, bool is_end)
{
    if (!chorus)
        return;
    chorus->is_ending = true;
    chorus_push(chorus);
    chorus->is_ending = is_end;
}

/* ---- Parts ------------------------------------------------------------------------------ */

static void count(struct chorus *chorus)
{
    int expected = 0;

    for (int i = 0; i < chorus->options.workers; i++)
        expected += chorus->streams[i] > 0;
    collapse_set_expected(chorus->collapse, expected);
}

void chorus_join(struct chorus *chorus, struct chorus_part *part)
{
    ct_list_init(&part->node);
    part->chorus = chorus;
    if (chorus->parts++ == 0) {
        free(chorus->prefix); /* of another round, perhaps: ranks change */
        chorus->prefix = NULL;
    }
    chorus->streams[part->worker]++;
    count(chorus);
}

void chorus_leave(struct chorus_part *part)
{
    struct chorus *chorus = part->chorus;

    if (!chorus)
        return;
    ct_list_remove(&part->node);
    part->chorus = NULL;
    chorus->parts--;
    chorus->streams[part->worker]--;
    count(chorus);
}

int chorus_add(struct chorus_part *part, const char *piece, size_t length)
{
    struct chorus *chorus = part->chorus;
    const uint64_t now_ms = ct_now_ms();
    const struct collapse_line *line;
    int rc;

    while ((rc = collapse_add(chorus->collapse, part->worker, part->is_teed, piece,
                              length, now_ms)) == -ENOBUFS) {
        if (!(line = collapse_peek(chorus->collapse, now_ms, true)))
            break;
        print(chorus, line);
        collapse_pop(chorus->collapse);
    }
    return rc;
}

bool chorus_is_full(struct chorus_part *part)
{
    if (!is_full(part->chorus))
        return false;
    if (ct_list_is_empty(&part->node))
        ct_list_add(&part->chorus->waiting, &part->node);
    return true;
}
