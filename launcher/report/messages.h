/* SPDX-License-Identifier: Apache-2.0 */
/* What ctrun prints on stderr: log lines by LOGLEVEL, and blocks about errors.
 *
 *     ctrun: error[E_PORT_BUSY]: port 29500 on gpu1 is taken
 *       by         : pid 4242 (python3 train.py)
 *       do         : leave the port out (one node: chosen freely), or stop pid 4242
 *
 * The first line is for grep; the code is stable. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    MESSAGES_BLOCK_MAX_BYTES = 64 * 1024,
    MESSAGES_STAMP_MAX = 40,
    MESSAGES_SPAN_MAX = 32
};

/* How much a line matters: what --quiet and a run that is being stopped leave out. */
enum messages_level {
    MESSAGES_TABLE = 0, /* torchrun's table */
    MESSAGES_NEWS = 1,
    MESSAGES_COUNTDOWN = 2, /* how long a run that is being stopped still has */
    MESSAGES_WARNING = 3,
    MESSAGES_ERROR = 4,
};

struct messages_block {
    enum messages_level level;
    size_t length;
    char text[MESSAGES_BLOCK_MAX_BYTES];
};

/* Receives the text that would go to stderr, a whole line or block in each call. False: it failed;
 * the text then goes to stderr. */
typedef bool messages_sink(enum messages_level level, const char *text, size_t length);
/* Sends messages to `sink` from now on, without time stamps. Call it before other threads begin.
 * NULL: no sink. */
void messages_set_sink(messages_sink *sink);
/* Gives `console` each text that would go to stderr from this thread. False: it goes there. NULL: no console. */
void messages_set_console(bool (*console)(const char *text, size_t length));
/* From now on a text is lost that nobody reads within half a second. */
void messages_hurry(void);

/* Sends log lines to stderr; LOGLEVEL (NULL: WARNING) is the threshold. */
void messages_open_log(const char *loglevel);

struct messages_style {
    bool is_quiet;       /* --quiet: prints warnings and errors only */
    bool is_verbose;     /* --verbose: log lines from INFO on; wins over is_quiet */
    bool has_timestamps; /* --timestamps */
};

/* Applies from now on; call it before other threads begin. */
void messages_set_style(const struct messages_style *style);
/* True when a line of that level is printed. */
bool messages_is_shown(enum messages_level level);
/* "2026-11-22T19:23:13.042+0100 ", the beginning of each line; "" without --timestamps. dst has
 * MESSAGES_STAMP_MAX bytes. */
void messages_stamp(char *dst);

/* "ctrun: error[E_X]: ..." begins a block, "  label      : ..." continues, print ends it. */
__attribute__((format(printf, 3, 4))) void
messages_begin(struct messages_block *block, int code, const char *fmt, ...);
/* The same with "warning" in place of "error". */
__attribute__((format(printf, 3, 4))) void
messages_begin_warning(struct messages_block *block, int code, const char *fmt, ...);
__attribute__((format(printf, 3, 4))) void
messages_add(struct messages_block *block, const char *label, const char *fmt, ...);
/* Appends text without a label, truncated when it does not fit. */
__attribute__((format(printf, 2, 3))) void messages_append(struct messages_block *block,
                                                           const char *fmt, ...);
/* Keeps the first line, the one for grep, and drops the rest. */
void messages_keep_first_line(struct messages_block *block);
void messages_print(const struct messages_block *block);

/* An error without anything to add: one line. */
void messages_error(const struct ctrun_error *err);
/* One short line of news, "ctrun: ...". */
__attribute__((format(printf, 1, 2))) void messages_notice(const char *fmt, ...);
/* The same, "ctrun: warning: ..." or, with a code (CTRUN_E_*, else 0), "ctrun: warning[E_X]: ...". */
__attribute__((format(printf, 2, 3))) void messages_warn(int code, const char *fmt,
                                                         ...);
/* The same of any level, without a label "warning" or "error". */
__attribute__((format(printf, 2, 3))) void
messages_print_line(enum messages_level level, const char *fmt, ...);

/* 93 s, 2 min 3 s, 2 h 11 min; dst has MESSAGES_SPAN_MAX bytes. */
void messages_format_span(char *dst, uint64_t ms);
/* "tasks" where each task of a step is an agent, else "nodes". */
const char *messages_unit(bool counts_tasks);
/* "waiting 23 s: 1/2 nodes; missing node2"; with counts_tasks "1/2 tasks". */
void messages_format_waiting(char *dst, size_t size, const struct ct_waiting *waiting,
                             bool counts_tasks, uint64_t waited_ms);
/* Why the start is held (ct_waiting.held_ms): "earlier workers of this run may still run", or, where nothing is known of any
 * (`has_past` false), that the server cannot rule them out yet. */
const char *messages_why_held(bool has_past);
/* "restart 1/3: rank 1 on node2 exited with 7" and its like for the other reasons. */
void messages_format_stop(char *dst, size_t size, const struct ct_stop *stop);
/* "node2 excluded: it failed first ...": what happens to a node that failed repeatedly. False:
 * there is no such node. */
bool messages_format_culprit(char *dst, size_t size, const struct ct_stop *stop);
/* "exited with 7", "died of SIGKILL (9)", "was killed for lack of memory": how a rank ended. */
void messages_format_cause(char *dst, size_t size, const struct ct_failure *failure);

/* With --ha, while the run had no etcd of its own to continue with; `why` is the reason. */
void messages_explain_no_ha(struct messages_block *block, const struct ctrun_error *err,
                            const char *why);
/* E_LEADER_LOST: why this node ends without a verdict, and how to avoid that; was_ctrund: the server was one. */
void messages_explain_leader_lost(struct messages_block *block,
                                  const struct ctrun_error *err, bool was_ctrund);
