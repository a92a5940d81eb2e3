/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes go raw into the stream's file (logfile.h) as they come, and piece by piece (lines.h)
 * into the console's queue. When the queue of either is above its mark the pipe is not read:
 * the worker that floods waits in its write(), the others and the heartbeat do not notice. */
#include "agent/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/lines.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

#define OUTPUT_PLAIN "\033[0m" /* ends what paint began */

struct output {
    struct console *console; /* NULL: goes nowhere but into files */
    struct loop_watch *pipe; /* NULL: nothing (more) to read */
    struct console_source source;
    struct chorus_part part;   /* instead of source when part.chorus is there */
    struct throttle *throttle; /* NULL: all goes to the console */
    struct throttle_line line;
    struct ct_buf in; /* read, not yet cut into pieces */
    struct logfile *file;
    struct logfile *filtered;
    char *prefix;
    size_t prefix_length;
    char *painted; /* the prefix as the console has it, where that differs */
    const char *const *filters;
    bool is_finished; /* free it once everything is written */
    bool is_pumping;
    size_t tail_length;
    char *tail; /* OUTPUT_TAIL_BYTES, from the first output on */
};

/* One read at a time on one thread: all streams share it. */
static char scratch[OUTPUT_READ_BYTES];

static void on_readable(void *context, unsigned events);
static void on_room(void *context);

static void destroy(struct output *output)
{
    loop_watch_close(output->pipe);
    console_source_deinit(&output->source);
    chorus_leave(&output->part);
    ct_buf_deinit(&output->in);
    logfile_close(output->file);
    logfile_close(output->filtered);
    free(output->prefix);
    free(output->painted);
    free(output->tail);
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

    if (pipe2(fds, O_CLOEXEC) < 0)
        return ct_fail(err, -errno, "pipe: %s", strerror(errno));
    if (options->pipe_bytes > 0)
        (void)fcntl(fds[0], F_SETPIPE_SZ,
                    options->pipe_bytes); /* refused: does as well */
    output->pipe = loop_watch_open(options->loop, fds[0], on_readable, output);
    if (!output->pipe) {
        close(fds[1]);
        return ct_fail(err, -ENOMEM, "pipe: out of memory");
    }
    loop_watch_for(output->pipe, LOOP_READ);
    return fds[1];
}

/* The pipe's other end, with what stands behind it. */
static int open_teed(struct output *output, const struct output_options *options,
                     struct ctrun_error *err)
{
    const bool is_teed = options->kind != AGENT_STREAM_FILE;
    int rc;

    if (options->file &&
        (rc = open_file(output, options, options->file, &output->file, err)) < 0)
        return rc;
    if (is_teed && options->filtered_file && options->filters &&
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
    }
    return open_pipe(output, options, err);
}

/* It has a console to write to; with --collapse through the chorus. */
static void enter(struct output *output, const struct output_options *options)
{
    output->console = options->console;
    output->throttle = options->throttle;
    if (!options->chorus || options->is_inherited)
        return;
    output->part.worker = options->local_rank;
    output->part.is_teed = options->kind == AGENT_STREAM_TEE;
    output->part.on_room = on_room;
    output->part.context = output;
    chorus_join(options->chorus, &output->part);
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

static void keep_tail(struct output *output, const void *data, size_t length)
{
    const char *at = data;
    size_t keep;

    if (!output->tail && !(output->tail = ct_zalloc(OUTPUT_TAIL_BYTES)))
        return; /* the report will do without */
    if (length > OUTPUT_TAIL_BYTES) {
        at += length - OUTPUT_TAIL_BYTES;
        length = OUTPUT_TAIL_BYTES;
    }
    keep = OUTPUT_TAIL_BYTES - length;
    if (keep > output->tail_length)
        keep = output->tail_length;
    memmove(output->tail, output->tail + output->tail_length - keep, keep);
    memcpy(output->tail + keep, at, length);
    output->tail_length = keep + length;
}

/* A piece that was cut for its length gets an end, so that the next one may have a prefix. */
static bool is_cut(const struct output *output, const char *piece, size_t length)
{
    return output->prefix && length >= OUTPUT_PIECE_MAX_BYTES - 4 &&
           piece[length - 1] != '\n' && piece[length - 1] != '\r';
}

static void write_filtered(struct output *output, const char *piece, size_t length)
{
    struct ct_buf whole;

    if (!lines_match(piece, length, output->filters))
        return;
    ct_buf_init(&whole, length + output->prefix_length + 1);
    if (ct_buf_append(&whole, output->prefix, output->prefix_length) == 0 &&
        ct_buf_append(&whole, piece, length) == 0 &&
        (!is_cut(output, piece, length) || ct_buf_append(&whole, "\n", 1) == 0))
        logfile_push(output->filtered, ct_buf_data(&whole), ct_buf_length(&whole));
    ct_buf_deinit(&whole);
}

/* One piece for the console: prefix, text, and an end when the line was cut. */
static int queue_piece(struct output *output, const char *piece, size_t length)
{
    const bool has_end = is_cut(output, piece, length);
    const char *prefix = output->painted ? output->painted : output->prefix;
    const size_t prefix_length = output->painted ? strlen(prefix)
                                                 : output->prefix_length;
    struct ct_buf *queue = &output->source.queue;
    uint8_t *at;
    int rc;

    if (output->filtered)
        write_filtered(output, piece, length);
    if (output->throttle && !throttle_takes(output->throttle, &output->line, piece,
                                            length, output->prefix_length))
        return 0;
    if (output->part.chorus)
        return chorus_add(&output->part, piece, length);
    if (!output->console)
        return 0;
    if ((rc = ct_buf_reserve(queue, prefix_length + length + 1, &at)) < 0)
        return rc;
    if (prefix_length > 0)
        memcpy(at, prefix, prefix_length);
    memcpy(at + prefix_length, piece, length);
    at[prefix_length + length] = '\n';
    ct_buf_commit(queue, prefix_length + length + has_end);
    return 0;
}

/* How much of `in` may go on now; 0: nothing that is whole. */
static size_t next_length(const struct output *output, bool is_last)
{
    const char *data = (const char *)ct_buf_data(&output->in);
    const size_t length = ct_buf_length(&output->in);
    const bool is_plain = !output->prefix && !output->filters && !output->part.chorus &&
                          !output->throttle;
    size_t n;

    n = is_plain ? lines_whole(data, length, OUTPUT_PIECE_MAX_BYTES)
                 : lines_first(data, length, OUTPUT_PIECE_MAX_BYTES);
    return n == 0 && is_last ? length : n;
}

static bool is_queue_full(struct output *output)
{
    if (output->part.chorus)
        return chorus_is_full(&output->part);
    return ct_buf_length(&output->source.queue) >= OUTPUT_QUEUE_HIGH_BYTES;
}

/* Nothing more should be read from the worker. */
static bool is_full(struct output *output)
{
    return is_queue_full(output) || (output->file && logfile_is_full(output->file)) ||
           (output->filtered && logfile_is_full(output->filtered));
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
        }
        if (output->part.chorus)
            chorus_push(output->part.chorus);
        else if (output->console)
            console_push(output->console, &output->source);
    } while (!is_queue_full(output) && next_length(output, is_last) > 0);
    output->is_pumping = false;
}

/* Reads once. What read() says, or -errno. */
static ssize_t read_some(struct output *output)
{
    const ssize_t n = read(loop_watch_fd(output->pipe), scratch, sizeof scratch);

    if (n < 0)
        return -errno;
    if (output->file)
        logfile_push(output->file, scratch, (size_t)n);
    keep_tail(output, scratch, (size_t)n);
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

void output_drain(struct output *output)
{
    size_t total = 0;
    ssize_t n;

    /* A child of the worker may write for ever: no more than a pipe can have held. */
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
    dst[0] = '\0';
    return output ? lines_last(output->tail, output->tail_length, OUTPUT_TAIL_LINES,
                               dst, size)
                  : 0;
}

/* The files get everything now; only the console may be late. */
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
    output->throttle = NULL; /* it goes; what is still to be shown is little */
    close_files(output);
    if (ct_buf_length(&output->in) == 0 && ct_buf_length(&output->source.queue) == 0)
        destroy(output);
}
