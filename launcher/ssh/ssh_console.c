/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_console.h"

#include <errno.h>
#include <unistd.h>

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
    bool is_full;
};

/* ---- Room -------------------------------------------------------------------------------- */

static void check_room(struct ssh_console *console)
{
    const bool is_full = console->sides[0].is_full || console->sides[1].is_full;

    if (is_full == console->is_full)
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
        if (!strchr("\n\r", text[part - 1]))
            (void)ct_buf_append(queue, "\n", 1);
        text += part;
        length -= part;
    }
    push(console, side);
}

void ssh_console_show(struct ssh_console *console, const struct ssh_message *message)
{
    struct side *err = &console->sides[1];
    char stamp[MESSAGES_STAMP_MAX];

    if (message->kind == SSH_OUTPUT) {
        show_lines(console, &console->sides[message->code == 2],
                   ssh_job_host(console->options.job, message->host), message->data,
                   message->length);
    } else if (ssh_message_dedup_is_new(console->dedup, message->host, message->data,
                                        message->length)) {
        messages_stamp(stamp);
        (void)ct_buf_printf(&err->source.queue, "%s", stamp);
        (void)ct_buf_append(&err->source.queue, message->data, message->length);
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
    console->dedup = ssh_message_dedup_create(options->job->total);
    console->sides[1].out = console_open(options->loop, STDERR_FILENO);
    console->sides[0].out = console_is_shared()
                                ? console->sides[1].out
                                : console_open(options->loop, STDOUT_FILENO);
    *out = console;
    return console->dedup && console->sides[0].out && console->sides[1].out ? 0
                                                                            : -ENOMEM;
}

void ssh_console_close(struct ssh_console *console)
{
    if (!console)
        return;
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
