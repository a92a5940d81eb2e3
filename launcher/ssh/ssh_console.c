/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_console.h"

#include <errno.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/output/console.h"
#include "agent/output/lines.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

enum {
    HIGH_BYTES = 128 * 1024,
    QUEUE_MAX_BYTES = 64 << 20, /* host names make short lines much longer */
    FLUSH_MS = 10000,
    LINE_MAX_BYTES = 4096,
    HELD_MAX_BYTES = 64 << 20, /* of all hosts */
};

struct side {
    struct console *out;
    struct console_source source;
    bool is_full;
};

struct ssh_console {
    struct ssh_console_options options;
    struct ssh_message_dedup *dedup;
    struct side sides[2]; /* stdout, stderr */
    struct ct_buf
        *begun;  /* of each host's stdout and stderr: a line whose end has not come */
    size_t held; /* bytes of them */
    bool is_full;
    bool is_closing; /* who reads the hosts' output is gone */
};

/* ---- Room -------------------------------------------------------------------------------- */

static void check_room(struct ssh_console *console)
{
    const bool is_full = console->sides[0].is_full || console->sides[1].is_full;

    if (is_full == console->is_full || console->is_closing)
        return;
    console->is_full = is_full;
    console->options.on_full(console->options.context, is_full);
}

static void on_out_room(void *context)
{
    struct ssh_console *console = context;

    console->sides[0].is_full = false;
    check_room(console);
}

static void on_err_room(void *context)
{
    struct ssh_console *console = context;

    console->sides[1].is_full = false;
    check_room(console);
}

static void push(struct ssh_console *console, struct side *side)
{
    console_push(side->out, &side->source);
    side->is_full = ct_buf_length(&side->source.queue) > HIGH_BYTES;
    check_room(console);
}

/* ---- Showing ----------------------------------------------------------------------------- */

static bool has_end(const char *text, size_t length)
{
    return text[length - 1] == '\n' || text[length - 1] == '\r';
}

/* Prints every line, and every state of a progress bar, with its host in front. */
static void show_lines(struct ssh_console *console, struct side *side, const char *host,
                       const char *text, size_t length)
{
    struct ct_buf *queue = &side->source.queue;

    while (length > 0) {
        size_t part = lines_first(text, length, length);

        part = part ? part : length;
        if (console->options.job->total > 1)
            (void)ct_buf_printf(queue, "%s: ", host);
        (void)ct_buf_append(queue, text, part);
        if (!has_end(text, part))
            (void)ct_buf_append(queue, "\n", 1);
        text += part;
        length -= part;
    }
    push(console, side);
}

static void end_line(struct ssh_console *console, uint32_t host, int is_err)
{
    struct ct_buf *begun = &console->begun[2 * host + (uint32_t)is_err];

    if (ct_buf_length(begun) == 0)
        return;
    show_lines(console, &console->sides[is_err],
               ssh_job_host(console->options.job, host),
               (const char *)ct_buf_data(begun), ct_buf_length(begun));
    console->held -= ct_buf_length(begun);
    ct_buf_deinit(begun);
}

/* A line that is longer than a message comes in pieces, and those of other hosts come between them:
 * it is shown when it is whole. Only a piece without an end is held. */
static void show_output(struct ssh_console *console, const struct ssh_message *message)
{
    const int is_err = message->code == 2;
    const char *text = message->data;
    struct ct_buf *begun = &console->begun[2 * message->host + (uint32_t)is_err];
    const size_t first = lines_first(text, message->length, message->length);
    size_t shown = 0, whole = message->length;

    while (whole > 0 && !has_end(text, whole))
        whole--;
    begun->max = OUTPUT_PIECE_MAX_BYTES + SSH_DATA_MAX_BYTES;
    if (ct_buf_length(begun) > 0 && whole > 0) {
        if (ct_buf_append(begun, text, first) == 0) {
            console->held += first;
            shown = first;
        }
        end_line(console, message->host, is_err);
    }
    show_lines(console, &console->sides[is_err],
               ssh_job_host(console->options.job, message->host), text + shown,
               whole > shown ? whole - shown : 0);
    if (whole == message->length)
        return;
    if (ct_buf_append(begun, text + whole, message->length - whole) == 0)
        console->held += message->length - whole;
    else
        show_lines(console, &console->sides[is_err],
                   ssh_job_host(console->options.job, message->host), text + whole,
                   message->length - whole);
    if (ct_buf_length(begun) > OUTPUT_PIECE_MAX_BYTES || console->held > HELD_MAX_BYTES)
        end_line(console, message->host, is_err);
}

void ssh_console_end(struct ssh_console *console, uint32_t host)
{
    end_line(console, host, 0);
    end_line(console, host, 1);
}

void ssh_console_show(struct ssh_console *console, const struct ssh_message *message)
{
    struct side *err = &console->sides[1];
    char stamp[MESSAGES_STAMP_MAX];

    if (message->kind == SSH_OUTPUT) {
        if (message->length > 0)
            show_output(console, message);
    } else if (ssh_message_dedup_is_new(console->dedup, message->host, message->data,
                                        message->length)) {
        char text[SSH_DATA_MAX_BYTES + 1];

        (void)ct_format(text, sizeof text, "%.*s", (int)message->length,
                        (const char *)message->data);
        ct_make_plain(text, true); /* a host may send what it wants */
        messages_stamp(stamp);
        (void)ct_buf_printf(&err->source.queue, "%s%s", stamp, text);
        push(console, err);
    }
}

void ssh_console_print(struct ssh_console *console, enum messages_level level,
                       const char *fmt, ...)
{
    struct side *err = &console->sides[1];
    char text[LINE_MAX_BYTES], stamp[MESSAGES_STAMP_MAX];
    va_list args;

    if (!messages_is_shown(level))
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ct_make_plain(text, true); /* it may quote remote output */
    messages_stamp(stamp);
    (void)ct_buf_printf(&err->source.queue, "%sctrun: %s\n", stamp, text);
    push(console, err);
}

/* ---- Life -------------------------------------------------------------------------------- */

int ssh_console_open(struct ssh_console **out,
                     const struct ssh_console_options *options)
{
    struct ssh_console *console = ct_zalloc(sizeof *console);

    if (!console)
        return -ENOMEM;
    console->options = *options;
    console_source_init(&console->sides[0].source, on_out_room, console);
    console_source_init(&console->sides[1].source, on_err_room, console);
    for (int i = 0; i < 2; i++)
        console->sides[i].source.queue.max = QUEUE_MAX_BYTES;
    console->begun = ct_zalloc_array(2 * (size_t)options->job->total,
                                     sizeof *console->begun);
    console->dedup = ssh_message_dedup_create(options->job->total);
    console->sides[1].out = console_open(options->loop, STDERR_FILENO);
    console->sides[0].out = console_is_shared()
                                ? console->sides[1].out
                                : console_open(options->loop, STDOUT_FILENO);
    *out = console;
    return console->begun && console->dedup && console->sides[0].out &&
                   console->sides[1].out
               ? 0
               : -ENOMEM;
}

void ssh_console_close(struct ssh_console *console)
{
    if (!console)
        return;
    console->is_closing = true;
    if (console->begun && console->sides[0].out && console->sides[1].out)
        for (uint32_t i = 0; i < console->options.job->total; i++)
            ssh_console_end(console, i);
    free(console->begun);
    for (int i = 1; i >= 0; i--)
        if (console->sides[i].out)
            console_flush(console->sides[i].out, FLUSH_MS);
    for (int i = 0; i < 2; i++)
        console_source_deinit(&console->sides[i].source);
    if (console->sides[0].out != console->sides[1].out)
        console_close(console->sides[0].out);
    console_close(console->sides[1].out);
    ssh_message_dedup_destroy(console->dedup);
    free(console);
}
