/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes go raw into the stream's file as they come, and piece by piece (lines.h) into the
 * console's queue. When the queue is above its mark the pipe is not read: the worker that
 * floods waits in its write(), the others and the heartbeat do not notice. */
#include "agent/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/lines.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

struct output {
    struct console *console; /* NULL: goes nowhere but into files */
    struct loop_watch *pipe; /* NULL: nothing (more) to read */
    struct console_source source;
    struct ct_buf in; /* read, not yet cut into pieces */
    int file;         /* -1: none, or the worker writes it itself */
    int filtered;
    char *path; /* of a file that the worker writes itself; NULL: none */
    char *prefix;
    const char *const *filters;
    bool is_finished; /* free it once everything is written */
    bool is_pumping;
    size_t tail_length;
    char tail[OUTPUT_TAIL_BYTES];
};

/* One read at a time on one thread: all streams share it. */
static uint8_t scratch[OUTPUT_READ_BYTES];

static void on_readable(void *context, unsigned events);
static void on_room(void *context);

static void destroy(struct output *output)
{
    loop_watch_close(output->pipe);
    console_source_deinit(&output->source);
    ct_buf_deinit(&output->in);
    if (output->file >= 0)
        close(output->file);
    if (output->filtered >= 0)
        close(output->filtered);
    free(output->path);
    free(output->prefix);
    free(output);
}

static int open_file(const char *path, int flags, struct ctrun_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);

    return fd >= 0 ? fd : ct_fail(err, -errno, "open %s: %s", path, strerror(errno));
}

static int open_pipe(struct output *output, struct loop *loop, struct ctrun_error *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return ct_fail(err, -errno, "pipe: %s", strerror(errno));
    output->pipe = loop_watch_open(loop, fds[0], on_readable, output);
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
    if (options->file && (output->file = open_file(options->file, O_TRUNC, err)) < 0)
        return output->file;
    if (options->filtered_file && options->filters &&
        (output->filtered = open_file(options->filtered_file, 0, err)) < 0)
        return output->filtered;
    output->filters = options->filters;
    if (options->prefix && !(output->prefix = ct_strdup(options->prefix)))
        return ct_fail(err, -ENOMEM, "output: out of memory");
    return open_pipe(output, options->loop, err);
}

static int open_child_end(struct output *output, const struct output_options *options,
                          struct ctrun_error *err)
{
    int fd;

    switch (options->kind) {
    case AGENT_STREAM_CONSOLE:
        output->console = options->console;
        return options->is_inherited ? -1 : open_pipe(output, options->loop, err);
    case AGENT_STREAM_FILE:
        if (!(output->path = ct_strdup(options->file)))
            return ct_fail(err, -ENOMEM, "output: out of memory");
        return open_file(options->file, O_TRUNC, err);
    case AGENT_STREAM_DROP:
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        return fd >= 0 ? fd
                       : ct_fail(err, -errno, "open /dev/null: %s", strerror(errno));
    case AGENT_STREAM_TEE: output->console = options->console; break;
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
    output->file = output->filtered = -1;
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

/* Files are not waited for; a full disk ends the copy, not the training. */
static void write_file(int *fd, const void *data, size_t length)
{
    const char *at = data;
    ssize_t n;

    while (*fd >= 0 && length > 0) {
        n = write(*fd, at, length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            ct_warn("log file given up error=%s", strerror(errno));
            close(*fd);
            *fd = -1;
            return;
        }
        at += n;
        length -= (size_t)n;
    }
}

static void keep_tail(struct output *output, const void *data, size_t length)
{
    const char *at = data;
    size_t keep;

    if (length > sizeof output->tail) {
        at += length - sizeof output->tail;
        length = sizeof output->tail;
    }
    keep = sizeof output->tail - length;
    if (keep > output->tail_length)
        keep = output->tail_length;
    memmove(output->tail, output->tail + output->tail_length - keep, keep);
    memcpy(output->tail + keep, at, length);
    output->tail_length = keep + length;
}

/* One teed piece: prefix, text, and an end when the line was cut for its length. */
static int queue_piece(struct output *output, const char *piece, size_t length)
{
    const bool is_ended = piece[length - 1] == '\n' || piece[length - 1] == '\r';
    const bool is_cut = !is_ended && length >= OUTPUT_PIECE_MAX_BYTES - 4;
    struct ct_buf *queue = &output->source.queue;
    const size_t before = ct_buf_length(queue);
    int rc = 0;

    if (output->prefix)
        rc = ct_buf_append(queue, output->prefix, strlen(output->prefix));
    if (rc == 0)
        rc = ct_buf_append(queue, piece, length);
    if (rc == 0 && is_cut && output->prefix)
        rc = ct_buf_append(queue, "\n", 1);
    if (rc == 0 && lines_match(piece, length, output->filters))
        write_file(&output->filtered, ct_buf_data(queue) + before,
                   ct_buf_length(queue) - before);
    return rc;
}

/* How much of `in` may go on now; 0: nothing that is whole. */
static size_t next_length(const struct output *output, bool is_last)
{
    const char *data = (const char *)ct_buf_data(&output->in);
    const size_t length = ct_buf_length(&output->in);
    const bool is_plain = !output->prefix && !output->filters;
    size_t n;

    n = is_plain ? lines_whole(data, length, OUTPUT_PIECE_MAX_BYTES)
                 : lines_first(data, length, OUTPUT_PIECE_MAX_BYTES);
    return n == 0 && is_last ? length : n;
}

static bool is_full(const struct output *output)
{
    return ct_buf_length(&output->source.queue) >= OUTPUT_QUEUE_HIGH_BYTES;
}

/* Moves pieces from `in` to the queue while it has room, and the queue to the console. */
static void pump(struct output *output, bool is_last)
{
    struct ct_buf *queue = &output->source.queue;
    size_t length;

    output->is_pumping = true; /* the console may call on_room() in here */
    do {
        while (!is_full(output) && (length = next_length(output, is_last)) > 0) {
            if (queue_piece(output, (const char *)ct_buf_data(&output->in), length) < 0)
                ct_warn("output lost bytes=%zu: out of memory", length);
            ct_buf_consume(&output->in, length);
            if (!output->console)
                ct_buf_consume(queue, ct_buf_length(queue));
        }
        if (output->console)
            console_push(output->console, &output->source);
    } while (!is_full(output) && next_length(output, is_last) > 0);
    output->is_pumping = false;
}

/* Reads once. What read() says, or -errno. */
static ssize_t read_some(struct output *output)
{
    const ssize_t n = read(loop_watch_fd(output->pipe), scratch, sizeof scratch);

    if (n < 0)
        return -errno;
    write_file(&output->file, scratch, (size_t)n);
    keep_tail(output, scratch, (size_t)n);
    if ((output->console || output->filtered >= 0) &&
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

static size_t read_file_end(const char *path, char *dst, size_t size)
{
    struct stat st;
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0)
        n = pread(fd, dst, size,
                  st.st_size > (off_t)size ? st.st_size - (off_t)size : 0);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

size_t output_last_lines(const struct output *output, char *dst, size_t size)
{
    char tail[OUTPUT_TAIL_BYTES];
    size_t length;

    dst[0] = '\0';
    if (!output)
        return 0;
    if (!output->path)
        return lines_last(output->tail, output->tail_length, OUTPUT_TAIL_LINES, dst,
                          size);
    length = read_file_end(output->path, tail, sizeof tail);
    return lines_last(tail, length, OUTPUT_TAIL_LINES, dst, size);
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
    if (ct_buf_length(&output->in) == 0 && ct_buf_length(&output->source.queue) == 0)
        destroy(output);
}
