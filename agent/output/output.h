/* SPDX-License-Identifier: Apache-2.0 */
/* One output stream (stdout or stderr) of one worker, from its descriptor to console and files.
 *
 *     output_open() ── worker writes ── output_drain() at its end ── output_finish()
 *
 * Output that the worker wrote before its death is read at output_drain(), whatever the cause of
 * death. Its children may continue writing until output_finish(), which does not wait for them;
 * data that the console has not taken by then are written later on the loop, and then the object
 * frees itself. */
#pragma once

#include "agent/output/console_dedup.h"
#include "agent/output/console.h"
#include "agent/output/logfile.h"
#include "agent/output/stream.h"
#include "agent/output/throttle.h"

struct output;

struct output_options {
    struct loop *loop;
    struct console *console; /* kept */
    /* kept; between this stream and the console; NULL: no --collapse */
    struct console_dedup *console_dedup;
    struct throttle *throttle; /* kept until output_finish(); NULL: no limit */
    int local_rank;
    struct logfile_writer *files; /* kept */
    enum agent_stream kind;
    bool is_inherited; /* CONSOLE means: the worker has our own descriptor */
    /* CONSOLE: the worker gets a terminal of this one's size; -1: a pipe */
    int terminal_fd;
    const char *file; /* FILE, TEE, FILE_ONLY_OF_TEE */
    const char *
        filtered_file; /* gets matching lines of teed streams, of all workers; may be NULL */
    uint64_t file_max_bytes; /* 0: no cap */
    int file_keep;           /* number of full files kept under other names */
    /* append to the output of an earlier worker in that file */
    bool appends;
    int pipe_bytes;             /* pipe size once it was full; 0: keep the default */
    const char *const *filters; /* kept; NULL at the end */
    const char *prefix;         /* in front of teed lines; may be NULL */
    const char *paint; /* in front of the prefix on the console; NULL: no colour */
};

/* *child_fd is what the worker writes to: -1 for inherited, else the caller closes it after the
 * spawn. On failure a code, with the file's name in err. */
int output_open(struct output **out, const struct output_options *options,
                int *child_fd, struct ctrun_error *err);
/* The terminal of options->terminal_fd may have another size now. */
void output_resize(struct output *output);
/* The worker is dead: reads what it has written. */
void output_drain(struct output *output);
/* The last lines, as far as they passed through us, without faulthandler's stacks. Returns their length. */
size_t output_last_lines(const struct output *output, char *dst, size_t size);
/* The last traceback in these lines: agent/postmortem/traceback.h. */
bool output_traceback(const struct output *output, size_t after_max, char *dst);
/* Stops reading; the caller must not use `output` afterwards. NULL is fine. */
void output_finish(struct output *output);
