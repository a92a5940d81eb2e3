/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_console.h"

#include <errno.h>
#include <unistd.h>

#include "agent/output/console.h"
#include "agent/output/lines.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    HIGH_BYTES = 128 * 1024,
    QUEUE_MAX_BYTES = 64 << 20, /* short lines grow much by their host's name */
    FLUSH_MS = 10000,
    LINE_MAX_BYTES = 4096,
};

struct side {
    struct console *console;
    struct console_source source;
    bool is_full;
};

struct ssh_console {
    struct ssh_console_options options;
    struct ssh_message_dedup *echo;
    struct side sides[2]; /* stdout, stderr */
    bool is_full;
};

/* ---- Room -------------------------------------------------------------------------------- */

static void check_room(struct ssh_console *screen)
{
    const bool is_full = screen->sides[0].is_full || screen->sides[1].is_full;

    if (is_full == screen->is_full)
        return;
    screen->is_full = is_full;
    screen->options.on_full(screen->options.context, is_full);
}

static void on_out_room(void *context)
{
    struct ssh_console *screen = context;

    screen->sides[0].is_full = false;
    check_room(screen);
}

static void on_err_room(void *context)
{
    struct ssh_console *screen = context;

    screen->sides[1].is_full = false;
    check_room(screen);
}

static void push(struct ssh_console *screen, struct side *side)
{
    console_push(side->console, &side->source);
    side->is_full = ct_buf_length(&side->source.queue) > HIGH_BYTES;
    check_room(screen);
}

/* ---- Showing ----------------------------------------------------------------------------- */

/* Every whole line, and every state of a progress bar, with its host in front. */
static void show_lines(struct ssh_console *screen, struct side *side, const char *host,
                       const char *text, size_t length)
{
    struct ct_buf *queue = &side->source.queue;

    while (length > 0) {
        size_t part = lines_first(text, length, length);

        part = part ? part : length;
        if (screen->options.job->total > 1)
            (void)ct_buf_printf(queue, "%s: ", host);
        (void)ct_buf_append(queue, text, part);
        if (!strchr("\n\r", text[part - 1]))
            (void)ct_buf_append(queue, "\n", 1);
        text += part;
        length -= part;
    }
    push(screen, side);
}

void ssh_console_show(struct ssh_console *screen, const struct ssh_message *message)
{
    struct side *err = &screen->sides[1];
    char stamp[MESSAGES_STAMP_MAX];

    if (message->kind == SSH_OUTPUT) {
        show_lines(screen, &screen->sides[message->code == 2],
                   ssh_job_host(screen->options.job, message->host), message->data,
                   message->length);
    } else if (ssh_message_dedup_is_new(screen->echo, message->host, message->data,
                                        message->length)) {
        messages_stamp(stamp);
        (void)ct_buf_printf(&err->source.queue, "%s", stamp);
        (void)ct_buf_append(&err->source.queue, message->data, message->length);
        push(screen, err);
    }
}

void ssh_console_say(struct ssh_console *screen, enum messages_level level,
                     const char *fmt, ...)
{
    struct side *err = &screen->sides[1];
    char text[LINE_MAX_BYTES], stamp[MESSAGES_STAMP_MAX];
    va_list args;

    if (!messages_is_shown(level))
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    messages_stamp(stamp);
    (void)ct_buf_printf(&err->source.queue, "%sctrun: %s\n", stamp, text);
    push(screen, err);
}

/* ---- Life -------------------------------------------------------------------------------- */

int ssh_console_open(struct ssh_console **out,
                     const struct ssh_console_options *options)
{
    struct ssh_console *screen = ct_zalloc(sizeof *screen);

    if (!screen)
        return -ENOMEM;
    screen->options = *options;
    console_source_init(&screen->sides[0].source, on_out_room, screen);
    console_source_init(&screen->sides[1].source, on_err_room, screen);
    for (int i = 0; i < 2; i++)
        screen->sides[i].source.queue.max = QUEUE_MAX_BYTES;
    screen->echo = ssh_message_dedup_create(options->job->total);
    screen->sides[1].console = console_open(options->loop, STDERR_FILENO);
    screen->sides[0].console = console_is_same(STDOUT_FILENO, STDERR_FILENO)
                                   ? screen->sides[1].console
                                   : console_open(options->loop, STDOUT_FILENO);
    *out = screen;
    return screen->echo && screen->sides[0].console && screen->sides[1].console
               ? 0
               : -ENOMEM;
}

void ssh_console_close(struct ssh_console *screen)
{
    if (!screen)
        return;
    for (int i = 1; i >= 0; i--)
        if (screen->sides[i].console)
            console_flush(screen->sides[i].console, FLUSH_MS);
    for (int i = 0; i < 2; i++)
        console_source_deinit(&screen->sides[i].source);
    if (screen->sides[0].console != screen->sides[1].console)
        console_close(screen->sides[0].console);
    console_close(screen->sides[1].console);
    ssh_message_dedup_destroy(screen->echo);
    free(screen);
}
