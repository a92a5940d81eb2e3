/* SPDX-License-Identifier: Apache-2.0 */
/* What ctrun says on stderr: log lines by LOGLEVEL, and blocks about errors.
 *
 *     ctrun: error[E_PORT_BUSY]: port 29500 on gpu1 is taken
 *       by         : pid 4242 (python3 train.py)
 *       do         : leave the port out (one node: chosen freely), or stop pid 4242
 *
 * The first line is for grep; the code is stable. Each block is one write. */
#ifndef LAUNCHER_MESSAGES_H
#define LAUNCHER_MESSAGES_H

#include <stdint.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    MESSAGES_BLOCK_MAX_BYTES = 64 * 1024,
    MESSAGES_SPAN_MAX = 32
};

struct messages_block {
    size_t length;
    char text[MESSAGES_BLOCK_MAX_BYTES];
};

/* Sends log lines to stderr; LOGLEVEL (NULL: WARNING) is the threshold. */
void messages_open_log(const char *loglevel);

/* "ctrun: error[E_X]: ..." begins a block, "  label      : ..." goes on, print ends it. */
__attribute__((format(printf, 3, 4))) void
messages_begin(struct messages_block *block, int code, const char *fmt, ...);
/* The same with "warning" in place of "error". */
__attribute__((format(printf, 3, 4))) void
messages_begin_warning(struct messages_block *block, int code, const char *fmt, ...);
__attribute__((format(printf, 3, 4))) void
messages_add(struct messages_block *block, const char *label, const char *fmt, ...);
/* Text as it is, cut when it does not fit. */
__attribute__((format(printf, 2, 3))) void messages_append(struct messages_block *block,
                                                           const char *fmt, ...);
void messages_print(const struct messages_block *block);

/* Ends a line of somebody else that has no end. */
void messages_end_line(void);
/* An error without anything to add: one line. */
void messages_error(const struct ctrun_error *err);
/* One short line, "ctrun: ...". */
__attribute__((format(printf, 1, 2))) void messages_say(const char *fmt, ...);

/* The exit code that goes with an error of the launcher itself (wire/contract.h). */
int messages_exit_code(int code);

/* 93 s, 2 min 3 s, 2 h 11 min; dst has MESSAGES_SPAN_MAX bytes. */
void messages_format_span(char *dst, uint64_t ms);
/* "waiting 23 s: 1/2 nodes; missing node2" */
void messages_format_waiting(char *dst, size_t size, const struct ct_waiting *waiting,
                             uint64_t waited_ms);
/* "restart 1/3: rank 1 on node2 exited with 7" and its like for the other reasons. */
void messages_format_stop(char *dst, size_t size, const struct ct_stop *stop);
/* "exited with 7", "died of SIGKILL (9)", "was killed for lack of memory": what it did. */
void messages_format_cause(char *dst, size_t size, const struct ct_failure *failure);

/* E09: why this node ends without a verdict, and what does better. */
void messages_explain_leader_lost(struct messages_block *block,
                                  const struct ctrun_error *err);

#endif
