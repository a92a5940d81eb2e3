/* SPDX-License-Identifier: Apache-2.0 */
/* torchrun's failure summary, exactly: scripts look for its labels. */
#include <signal.h>

#include "launcher/report/summary.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/signal_name.h"

enum {
    TORCHRUN_WIDTH = 60,
    TRACE_MAX_BYTES = 6000,
    FAILURE_MAX_BYTES = 8192
};

/* What follows "traceback :": the error file's text, the signal, or torchrun's advice.
 * `room` is for a sentence of our own. A long traceback loses its beginning: its end
 * has the reason. */
static const char *find_trace(const struct ct_failure *failure,
                              const struct json_error_file *file, char *room,
                              size_t size)
{
    int code = summary_python_code(failure);
    const char *name = code < 0 ? ct_signal_name(-code) : NULL;
    const char *text = file && file->callstack ? file->callstack
                       : file                  ? file->message
                                               : NULL;

    if (!text && failure->error_file[0] && failure->text[0])
        text = failure->text; /* of another node's file */
    if (text)
        return strlen(text) > TRACE_MAX_BYTES ? text + strlen(text) - TRACE_MAX_BYTES
                                              : text;
    if (failure->cause == CT_CAUSE_STOPPED && code >= 0)
        return "stopped by ctrun";
    *room = '\0';
    if (failure->cause == CT_CAUSE_HANG)
        (void)ct_format(room, size, "E_HANG: %s%s", failure->text,
                        code < 0 ? "; so ctrun ended it: " : "");
    if (*room && code >= 0)
        return room;
    if (code >= 0)
        return "To enable traceback see: "
               "https://pytorch.org/docs/stable/elastic/errors.html";
    (void)ct_append(room, size, "Signal %d (%s%s) received by PID %d", -code,
                    name ? "SIG" : "", name ? name : "<N/A>", failure->pid);
    return room;
}

/* Then the worker has no pid. */
static bool was_never_started(const struct ct_failure *failure)
{
    return failure->pid == 0 &&
           (failure->cause == CT_CAUSE_EXEC || failure->cause == CT_CAUSE_AGENT);
}

/* One failure: six lines, the last of which may continue, indented. */
static void format_failure(char *dst, size_t size, const struct summary *summary,
                           int index)
{
    const struct ct_failure *failure = &summary->verdict->failures[index];
    int code = summary_python_code(failure);
    const char *name = code < 0 ? ct_signal_name(-code) : NULL;
    char code_text[16] = "<N/A>"; /* nobody saw it end */
    char signal_text[64] = "";
    char pid_text[32] = "could not be started";
    char when[CT_CLOCK_TEXT_MAX];
    char room[CT_REASON_MAX + 128];
    const char *trace = find_trace(
        failure, summary->files ? &summary->files[index] : NULL, room, sizeof room);

    ct_format_wall(when, failure->wall_ns);
    if (name)
        (void)ct_format(signal_text, sizeof signal_text, " (SIG%s)", name);
    if (!was_never_started(failure))
        (void)ct_format(pid_text, sizeof pid_text, "pid: %d", failure->pid);
    if (code)
        (void)ct_format(code_text, sizeof code_text, "%d", code);
    (void)ct_format(
        dst, size,
        "[%d]:\n  time      : %s\n  host      : %s\n  rank      : %d (local_rank: "
        "%d)\n  exitcode  : %s (%s) %s\n  error_file: %s\n  traceback : ",
        index, when, failure->host, failure->rank, failure->local_rank, code_text,
        pid_text, signal_text, failure->error_file[0] ? failure->error_file : "<N/A>");
    for (size_t length; *trace; trace += length + (trace[length] == '\n')) {
        length = strcspn(trace, "\n");
        (void)ct_append(dst, size, "%.*s%s", (int)length, trace,
                        trace[length] && trace[length + 1] ? "\n  " : "");
    }
}

/* False for a node, and for a worker that succeeded: torchrun's table has no text for them, only
 * our block has. */
static bool is_shown(const struct summary *summary, int index)
{
    const struct ct_failure *failure = &summary->verdict->failures[index];

    return failure->rank >= 0 && failure->cause != CT_CAUSE_EARLY &&
           failure->cause != CT_CAUSE_ENDED &&
           (index == 0 || summary->lists_stopped ||
            !summary_is_stopped(summary->verdict, failure));
}

static size_t longest_line(const char *text)
{
    size_t longest = 0;

    while (*text) {
        size_t length = strcspn(text, "\n");

        longest = length > longest ? length : longest;
        text += length + (text[length] == '\n');
    }
    return longest;
}

static void append_rule(struct messages_block *out, char letter, size_t width)
{
    char line[TORCHRUN_WIDTH + 1];

    memset(line, letter, width);
    line[width] = '\0';
    messages_append(out, "%s\n", line);
}

/* The line that torchrun logs before its table. */
static void append_end(struct messages_block *out, const struct summary *summary)
{
    const struct ct_failure *root = &summary->verdict->failures[0];
    const int code = summary_python_code(root);

    if (summary->binary && code && !was_never_started(root))
        messages_append(
            out, "failed (exitcode: %d) local_rank: %d (pid: %d) of binary: %s\n", code,
            root->local_rank, root->pid, summary->binary);
}

void summary_torchrun_format(struct messages_block *out, const struct summary *summary)
{
    const struct ct_verdict *verdict = summary->verdict;
    int count = verdict->failure_count > CT_FAILURES_MAX ? CT_FAILURES_MAX
                                                         : verdict->failure_count;
    int others = 0;
    char title[512], stopped[512];
    char text[FAILURE_MAX_BYTES];
    size_t width;

    out->level = MESSAGES_TABLE;
    out->length = 0;
    out->text[0] = '\0';
    if (!count || verdict->failures[0].rank < 0)
        return;
    (void)ct_format(title, sizeof title, "%s %s", summary->name,
                    was_never_started(&verdict->failures[0]) ? "could not be started"
                                                             : "FAILED");
    width = strlen(title);
    for (int i = 0; i < count; i++) {
        if (!is_shown(summary, i))
            continue;
        format_failure(text, sizeof text, summary, i);
        width = longest_line(text) > width ? longest_line(text) : width;
    }
    width = width > TORCHRUN_WIDTH ? TORCHRUN_WIDTH : width;
    append_end(out, summary);
    messages_append(
        out, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n");
    append_rule(out, '=', width);
    messages_append(out, "%s\n", title);
    append_rule(out, '-', width);
    messages_append(out, "Failures:\n");
    for (int i = 1; i < count; i++) {
        if (!is_shown(summary, i))
            continue;
        format_failure(text, sizeof text, summary, i);
        messages_append(out, "%s\n", text);
        others++;
    }
    if (verdict->more.failed > 0)
        messages_append(out, "  and %u more failed\n", verdict->more.failed);
    if (!others)
        messages_append(out, "  <NO_OTHER_FAILURES>\n");
    summary_format_stopped(stopped, sizeof stopped, verdict);
    if (*stopped && !summary->lists_stopped)
        messages_append(out, "  %s\n", stopped);
    append_rule(out, '-', width);
    messages_append(out, "Root Cause (first observed failure):\n");
    format_failure(text, sizeof text, summary, 0);
    messages_append(out, "%s\n", text);
    append_rule(out, '=', width);
}
