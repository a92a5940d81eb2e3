/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes go raw into the stream's file (logfile.h) as they come, and piece by piece (lines.h)
 * into the console's queue. When either queue is above its high mark the pipe is not read: a
 * worker that writes too much waits in its write(); other workers and the heartbeat are not
 * delayed. */
#include "agent/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/output/lines.h"
#include "agent/postmortem/traceback.h"
#include "agent/process/pty.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

#define OUTPUT_PLAIN "\033[0m" /* ends the colour of the prefix */

/* The last bytes that were written, as a ring. */
struct last_words {
    size_t length; /* total bytes written */
    char ring[OUTPUT_TAIL_BYTES];
};

struct output {
    struct console *console; /* NULL: output goes only to files */
    struct loop_watch *pipe; /* or pseudo terminal; NULL: nothing (more) to read */
    int terminal_fd;         /* a terminal to copy the size from; -1: a pipe */
    /* size to set once the pipe was full; 0: keep the default */
    int pipe_bytes;
    struct console_source source;
    /* used in place of source when part.console_dedup is set */
    struct console_dedup_part part;
    struct throttle *throttle; /* NULL: all goes to the console */
    struct throttle_line line;
    struct ct_buf in; /* read, not yet cut into pieces */
    /* bytes at the beginning of `in` already shown: an unfinished line */
    size_t shown;
    size_t searched;  /* bytes at the beginning of `in` that have no mark of an end */
    bool is_mid_line; /* the last piece was cut: `in` goes on with its line */
    struct loop *loop;
    struct loop_timer *wait; /* timer of an unfinished line; NULL: there was none yet */
    bool is_waiting;
    size_t begun; /* bytes in `in` when that timer was set */
    struct logfile *file;
    struct logfile *filtered;
    char *prefix;
    size_t prefix_length;
    char *painted; /* the prefix with colour, where the console gets one */
    const char *const *filters;
    bool is_finished; /* free it once everything is written */
    bool is_pumping;
    struct last_words *words; /* allocated at the first output */
};

/* Shared by all streams: one thread reads one stream at a time. */
static char scratch[OUTPUT_READ_BYTES];

static void on_readable(void *context, unsigned events);
static void on_room(void *context);

static void destroy(struct output *output)
{
    loop_watch_close(output->pipe);
    loop_timer_close(output->wait);
    console_source_deinit(&output->source);
    console_dedup_leave(&output->part);
    ct_buf_deinit(&output->in);
    logfile_close(output->file);
    logfile_close(output->filtered);
    free(output->prefix);
    free(output->painted);
    free(output->words);
    free(output);
}

static int paint_prefix(struct output *output, const char *paint)
{
    const size_t size = strlen(paint) + output->prefix_length + sizeof OUTPUT_PLAIN;

    if (!(output->painted = ct_zalloc(size)))
        return -ENOMEM;
    return ct_format(output->painted, size, "%s%s" OUTPUT_PLAIN, paint, output->prefix);
}

static int open_file(struct output *output, const struct output_options *options,
                     const char *path, struct logfile **out, struct ctrun_error *err)
{
    const struct logfile_options file = {
        .path = path,
        .max_bytes = options->file_max_bytes,
        .keep = options->file_keep,
        .appends = options->appends,
        .on_room = on_room,
        .context = output,
    };

    return logfile_open(options->files, out, &file, err);
}

static int open_pipe(struct output *output, const struct output_options *options,
                     struct ctrun_error *err)
{
    int fds[2];

    output->terminal_fd = options->kind == AGENT_STREAM_CONSOLE ? options->terminal_fd
                                                                : -1;
    if (output->terminal_fd >= 0 &&
        (fds[0] = pty_open(&fds[1], output->terminal_fd)) < 0)
        output->terminal_fd = -1; /* on failure, use a pipe */
    if (output->terminal_fd < 0 && pipe2(fds, O_CLOEXEC) < 0)
        return ct_fail(err, -errno, "pipe: %s", strerror(errno));
    if (output->terminal_fd < 0)
        output->pipe_bytes = options->pipe_bytes;
    output->pipe = loop_watch_open(options->loop, fds[0], on_readable, output);
    if (!output->pipe) {
        close(fds[1]);
        return ct_fail(err, -ENOMEM, "pipe: out of memory");
    }
    loop_watch_for(output->pipe, LOOP_READ);
    return fds[1];
}

/* Opens our end of the pipe, and the files that its output goes to. */
static int open_teed(struct output *output, const struct output_options *options,
                     struct ctrun_error *err)
{
    const bool is_teed = options->kind != AGENT_STREAM_FILE;
    int rc;

    if (options->file &&
        (rc = open_file(output, options, options->file, &output->file, err)) < 0)
        return rc;
    if (is_teed && options->kind != AGENT_STREAM_FILE_ONLY_OF_TEE &&
        options->filtered_file && options->filters &&
        (rc = open_file(output, options, options->filtered_file, &output->filtered,
                        err)) < 0)
        return rc;
    output->filters = output->filtered ? options->filters : NULL;
    if (is_teed && options->prefix) {
        if (!(output->prefix = ct_strdup(options->prefix)))
            return ct_fail(err, -ENOMEM, "output: out of memory");
        output->prefix_length = strlen(output->prefix);
        if (options->paint && paint_prefix(output, options->paint) < 0)
            return ct_fail(err, -ENOMEM, "output: out of memory");
        output->source.prefix = output->painted ? output->painted : output->prefix;
    }
    return open_pipe(output, options, err);
}

/* Adds the stream to its console, with --collapse through console_dedup. */
static void enter(struct output *output, const struct output_options *options)
{
    output->console = options->console;
    output->throttle = options->throttle;
    if (!options->console_dedup || options->is_inherited)
        return;
    output->part.worker = options->local_rank;
    output->part.is_teed = options->kind == AGENT_STREAM_TEE;
    output->part.on_room = on_room;
    output->part.context = output;
    console_dedup_join(options->console_dedup, &output->part);
}

static int open_child_end(struct output *output, const struct output_options *options,
                          struct ctrun_error *err)
{
    int fd;

    switch (options->kind) {
    case AGENT_STREAM_CONSOLE:
        enter(output, options);
        return options->is_inherited ? -1 : open_pipe(output, options, err);
    case AGENT_STREAM_DROP:
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        return fd >= 0 ? fd
                       : ct_fail(err, -errno, "open /dev/null: %s", strerror(errno));
    case AGENT_STREAM_TEE: enter(output, options); break;
    case AGENT_STREAM_FILE:
    case AGENT_STREAM_FILE_ONLY_OF_TEE: break;
    }
    return open_teed(output, options, err);
}

int output_open(struct output **out, const struct output_options *options,
                int *child_fd, struct ctrun_error *err)
{
    struct output *output = ct_zalloc(sizeof *output);
    int rc;

    *child_fd = -1;
    if (!output)
        return ct_fail(err, -ENOMEM, "output: out of memory");
    output->loop = options->loop;
    output->terminal_fd = -1;
    console_source_init(&output->source, on_room, output);
    ct_buf_init(&output->in,
                OUTPUT_PIECE_MAX_BYTES + OUTPUT_READ_BYTES + OUTPUT_PIPE_MAX_BYTES);
    rc = open_child_end(output, options, err);
    if (rc < 0 && !(options->kind == AGENT_STREAM_CONSOLE && options->is_inherited)) {
        destroy(output);
        return rc;
    }
    *child_fd = rc;
    *out = output;
    return 0;
}

static void keep_words(struct output *output, const char *data, size_t length)
{
    struct last_words *words = output->words;
    size_t at, part;

    if (length == 0)
        return;
    if (!words) { /* not zeroed: most workers write little, or nothing */
        if (!(words = output->words = ct_realloc_array(NULL, 1, sizeof *words)))
            return; /* the report then has no last lines */
        words->length = 0;
    }
    words->length += length;
    if (length > OUTPUT_TAIL_BYTES) {
        data += length - OUTPUT_TAIL_BYTES;
        length = OUTPUT_TAIL_BYTES;
    }
    at = (words->length - length) % OUTPUT_TAIL_BYTES;
    part = length < OUTPUT_TAIL_BYTES - at ? length : OUTPUT_TAIL_BYTES - at;
    memcpy(words->ring + at, data, part);
    memcpy(words->ring, data + part, length - part);
}

/* The ring as one text, in a buffer that all streams share. */
static const char *unroll(const struct output *output, size_t *length)
{
    static char text[OUTPUT_TAIL_BYTES];
    const struct last_words *words = output ? output->words : NULL;
    const size_t at = words ? words->length % OUTPUT_TAIL_BYTES : 0;

    *length = !words                              ? 0
              : words->length < OUTPUT_TAIL_BYTES ? words->length
                                                  : OUTPUT_TAIL_BYTES;
    if (*length == OUTPUT_TAIL_BYTES) {
        memcpy(text, words->ring + at, OUTPUT_TAIL_BYTES - at);
        memcpy(text + OUTPUT_TAIL_BYTES - at, words->ring, at);
        return text;
    }
    return words ? words->ring : text;
}

/* A piece that was cut at the maximum length, or the last one. */
static bool is_cut(const char *piece, size_t length)
{
    return piece[length - 1] != '\n' && piece[length - 1] != '\r';
}

/* All streams append to one file, so a piece that was cut gets a line end there. */
static bool needs_end(const struct output *output, const char *piece, size_t length)
{
    return output->prefix && length >= OUTPUT_PIECE_MAX_BYTES - 4 &&
           is_cut(piece, length);
}

static void write_filtered(struct output *output, const char *piece, size_t length)
{
    struct ct_buf whole;

    if (!lines_match(piece, length, output->filters))
        return;
    ct_buf_init(&whole, length + output->prefix_length + 1);
    if (ct_buf_append(&whole, output->prefix, output->prefix_length) == 0 &&
        ct_buf_append(&whole, piece, length) == 0 &&
        (!needs_end(output, piece, length) || ct_buf_append(&whole, "\n", 1) == 0))
        logfile_push(output->filtered, ct_buf_data(&whole), ct_buf_length(&whole));
    ct_buf_deinit(&whole);
}

/* Text for the console: with the prefix where a line begins. */
static int queue_text(struct output *output, const char *text, size_t length)
{
    const bool is_begin = output->shown == 0 && !output->is_mid_line;
    const char *prefix = is_begin ? output->source.prefix : NULL;
    const size_t prefix_length = prefix ? strlen(prefix) : 0;
    struct ct_buf *queue = &output->source.queue;
    uint8_t *at;
    int rc;

    if (length == 0)
        return 0; /* all of it was shown before */
    if (output->throttle &&
        !throttle_takes(output->throttle, &output->line, text, length, prefix_length))
        return 0;
    if (output->part.console_dedup)
        return console_dedup_add(&output->part, text, length);
    if (!output->console)
        return 0;
    if ((rc = ct_buf_reserve(queue, prefix_length + length, &at)) < 0)
        return rc;
    if (prefix_length > 0)
        memcpy(at, prefix, prefix_length);
    memcpy(at + prefix_length, text, length);
    ct_buf_commit(queue, prefix_length + length);
    return 0;
}

/* One piece, of which the beginning may have been shown. */
static int queue_piece(struct output *output, const char *piece, size_t length)
{
    int rc;

    if (output->filtered)
        write_filtered(output, piece, length);
    rc = queue_text(output, piece + output->shown, length - output->shown);
    output->shown = 0;
    output->is_mid_line = is_cut(piece, length);
    return rc;
}

/* Bytes of `in` that can be queued now; 0: no complete piece. */
static size_t next_length(struct output *output, bool is_last)
{
    const char *data = (const char *)ct_buf_data(&output->in);
    const size_t length = ct_buf_length(&output->in);
    const size_t searched = output->searched;
    const bool is_plain = !output->prefix && !output->filters &&
                          !output->part.console_dedup && !output->throttle;
    size_t n;

    if (length > searched && length < OUTPUT_PIECE_MAX_BYTES &&
        !lines_have_end(data + searched, length - searched))
        output->searched = length;
    if (length == output->searched)
        return is_last ? length : 0;
    n = is_plain ? lines_whole(data, length, OUTPUT_PIECE_MAX_BYTES)
                 : lines_first(data, length, OUTPUT_PIECE_MAX_BYTES);
    return n == 0 && is_last ? length : n;
}

static bool is_queue_full(struct output *output)
{
    if (output->part.console_dedup)
        return console_dedup_is_full(&output->part);
    return ct_buf_length(&output->source.queue) >= OUTPUT_QUEUE_HIGH_BYTES;
}

/* True: do not read more from the worker now. */
static bool is_full(struct output *output)
{
    return is_queue_full(output) || (output->file && logfile_is_full(output->file)) ||
           (output->filtered && logfile_is_full(output->filtered));
}

/* An unfinished line is shown after a short time: it may be a prompt. One that still comes fast is
 * none, and another stream would cut it in two: it gets the time again. With --collapse it is held
 * until it is whole, because only whole lines can be merged. */
static bool has_begun(struct output *output)
{
    return output->console && !output->part.console_dedup &&
           ct_buf_length(&output->in) > output->shown &&
           next_length(output, false) == 0;
}

static void wait_for_end(struct output *output);

static void on_wait(void *context)
{
    struct output *output = context;
    const char *data = (const char *)ct_buf_data(&output->in);
    size_t length;

    output->is_waiting = false;
    if (!has_begun(output) || is_queue_full(output))
        return; /* on_room() continues */
    if (ct_buf_length(&output->in) >= output->begun + OUTPUT_BEGUN_FAST_BYTES) {
        wait_for_end(output);
        return;
    }
    length = lines_begun(data, ct_buf_length(&output->in));
    if (length <= output->shown)
        return;
    if (queue_text(output, data + output->shown, length - output->shown) < 0)
        return; /* the unfinished line is still there */
    output->shown = length;
    console_push(output->console, &output->source);
}

static void wait_for_end(struct output *output)
{
    if (output->is_waiting || !output->pipe || !has_begun(output))
        return;
    if (!output->wait &&
        !(output->wait = loop_timer_open(output->loop, on_wait, output)))
        return;
    output->begun = ct_buf_length(&output->in);
    loop_timer_set(output->wait, OUTPUT_BEGUN_MS);
    output->is_waiting = true;
}

/* Moves pieces from `in` to the queue while it has room, and the queue to the console. */
static void pump(struct output *output, bool is_last)
{
    size_t length;

    output->is_pumping = true; /* the console may call on_room() in here */
    do {
        while (!is_queue_full(output) && (length = next_length(output, is_last)) > 0) {
            if (queue_piece(output, (const char *)ct_buf_data(&output->in), length) < 0)
                ct_warn("output lost bytes=%zu: out of memory", length);
            ct_buf_consume(&output->in, length);
            output->searched = 0;
            /* an unfinished line that is left is a new one */
            output->is_waiting = false;
        }
        if (output->part.console_dedup)
            console_dedup_push(output->part.console_dedup);
        else if (output->console)
            console_push(output->console, &output->source);
    } while (!is_queue_full(output) && next_length(output, is_last) > 0);
    output->is_pumping = false;
    wait_for_end(output);
}

/* Done only after the pipe was full: most workers never fill it. */
static void widen_pipe(struct output *output)
{
    (void)fcntl(loop_watch_fd(output->pipe), F_SETPIPE_SZ,
                output->pipe_bytes); /* on failure the default size stays */
    output->pipe_bytes = 0;
}

/* Reads once. Returns the result of read(), or -errno: -EIO is the end of a terminal. */
static ssize_t read_some(struct output *output)
{
    const ssize_t n = read(loop_watch_fd(output->pipe), scratch, sizeof scratch);

    if (n < 0)
        return -errno;
    if (output->pipe_bytes > 0 && n >= OUTPUT_PIPE_FULL_BYTES)
        widen_pipe(output);
    if (output->file)
        logfile_push(output->file, scratch, (size_t)n);
    keep_words(output, scratch, (size_t)n);
    if ((output->console || output->filtered) &&
        ct_buf_append(&output->in, scratch, (size_t)n) < 0)
        ct_warn("output lost bytes=%zd: out of memory", n);
    return n;
}

static void close_pipe(struct output *output)
{
    loop_watch_close(output->pipe);
    output->pipe = NULL;
}

/* True when the output goes nowhere: then the pipe is closed, so that the worker notices as it
 * would without us. */
static bool is_useless(const struct output *output)
{
    return output->console && console_is_lost(output->console) && !output->file &&
           !output->filtered;
}

static void on_readable(void *context, unsigned events)
{
    struct output *output = context;
    const ssize_t n = read_some(output);

    (void)events;
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0)
        close_pipe(output);
    pump(output, n <= 0);
    if (output->pipe && is_useless(output))
        close_pipe(output);
    if (output->pipe)
        loop_watch_for(output->pipe, is_full(output) ? 0 : LOOP_READ);
}

static void on_room(void *context)
{
    struct output *output = context;

    if (output->is_pumping)
        return;
    pump(output, !output->pipe);
    if (output->pipe)
        loop_watch_for(output->pipe, is_full(output) ? 0 : LOOP_READ);
    else if (output->is_finished && ct_buf_length(&output->in) == 0 &&
             ct_buf_length(&output->source.queue) == 0)
        destroy(output);
}

void output_resize(struct output *output)
{
    if (output && output->pipe && output->terminal_fd >= 0)
        pty_resize(loop_watch_fd(output->pipe), output->terminal_fd);
}

void output_drain(struct output *output)
{
    size_t total = 0;
    ssize_t n;

    /* A child of the worker may write forever: read at most what a pipe can have held. */
    while (output && output->pipe && total < OUTPUT_PIPE_MAX_BYTES &&
           (n = read_some(output)) != -EAGAIN) {
        if (n > 0)
            total += (size_t)n;
        else if (n != -EINTR)
            close_pipe(output);
    }
    if (output)
        pump(output, !output->pipe);
}

size_t output_last_lines(const struct output *output, char *dst, size_t size)
{
    size_t length;
    const char *text = unroll(output, &length);

    length = traceback_cut_dump(text, length);
    return lines_last(text, length, OUTPUT_TAIL_LINES, dst, size);
}

bool output_traceback(const struct output *output, size_t after_max, char *dst)
{
    size_t length;
    const char *text = unroll(output, &length);

    return traceback_find(dst, text, length, after_max);
}

/* The files get all their data now; only the console may get its data later. */
static void close_files(struct output *output)
{
    const char *data = (const char *)ct_buf_data(&output->in);
    const size_t length = ct_buf_length(&output->in);
    size_t part;

    for (size_t at = 0; output->filtered && at < length; at += part) {
        part = lines_first(data + at, length - at, OUTPUT_PIECE_MAX_BYTES);
        part = part > 0 ? part : length - at;
        write_filtered(output, data + at, part);
    }
    logfile_close(output->filtered);
    logfile_close(output->file);
    output->filtered = output->file = NULL;
}

void output_finish(struct output *output)
{
    if (!output)
        return;
    output_drain(output);
    if (output->pipe)
        close_pipe(output);
    output->is_finished = true;
    pump(output, true);
    output->throttle = NULL; /* the worker is gone; little is left to be shown */
    close_files(output);
    if (ct_buf_length(&output->in) == 0 && ct_buf_length(&output->source.queue) == 0)
        destroy(output);
}
