/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/summary.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    LAST_LINES_MAX = 4,
    PAST_MAX = 3 /* earlier rounds whose end is shown */
};

int summary_code_of(const struct ct_failure *failure)
{
    switch ((enum ct_cause)failure->cause) {
    case CT_CAUSE_SIGNAL:
    case CT_CAUSE_STOPPED: return CTRUN_E_SIGNAL;
    case CT_CAUSE_OOM: return CTRUN_E_OOM;
    case CT_CAUSE_EXEC: return CTRUN_E_EXEC;
    case CT_CAUSE_NODE_LOST: return CTRUN_E_PEER_LOST;
    case CT_CAUSE_UNKILLABLE: return CTRUN_E_UNKILLABLE;
    case CT_CAUSE_JOIN_TIMEOUT: return CTRUN_E_JOIN_TIMEOUT;
    case CT_CAUSE_HANG: return CTRUN_E_HANG;
    case CT_CAUSE_UNREACHABLE: return CTRUN_E_UNREACHABLE;
    case CT_CAUSE_AGENT: return failure->code > 0 ? -failure->code : CTRUN_E_EXIT;
    case CT_CAUSE_EARLY:
    case CT_CAUSE_ENDED:
    case CT_CAUSE_RAISED:
    case CT_CAUSE_EXIT:
    case CT_CAUSE_NONE: break;
    }
    return CTRUN_E_EXIT;
}

/* As torchrun's table has it: Popen.returncode. A rank that never ran has a shell's code for its
 * program: 126 or 127. */
int summary_python_code(const struct ct_failure *failure)
{
    switch ((enum ct_cause)failure->cause) {
    case CT_CAUSE_SIGNAL: return -failure->code;
    case CT_CAUSE_OOM: return -SIGKILL;
    case CT_CAUSE_EXEC:
        return failure->code == ENOENT ? CT_EXIT_NOT_FOUND : CT_EXIT_CANNOT_EXEC;
    case CT_CAUSE_EXIT: return failure->code;
    case CT_CAUSE_AGENT: return CT_EXIT_FAILURE;
    case CT_CAUSE_STOPPED:
    case CT_CAUSE_RAISED:
    case CT_CAUSE_HANG: return failure->end_code;
    case CT_CAUSE_NONE:
    case CT_CAUSE_NODE_LOST:
    case CT_CAUSE_UNKILLABLE:
    case CT_CAUSE_JOIN_TIMEOUT:
    case CT_CAUSE_EARLY:
    case CT_CAUSE_ENDED:
    case CT_CAUSE_UNREACHABLE: break;
    }
    return 0;
}

/* ---- Our block ----------------------------------------------------------------------- */

/* Where a part of a traceback begins that a reader understands: at its headline or a frame, not at the
 * code or the carets of a frame that is not shown. */
static const char *begin_at_frame(const char *at, const char *end)
{
    static const char frame[] = "\n  File \"";
    const char *next;

    if (ct_starts_with(at, "Traceback") || ct_starts_with(at, frame + 1))
        return at;
    if ((next = memmem(at, (size_t)(end - at), frame, sizeof frame - 1)))
        return next + 1;
    next = at + strspn(at, " ^~");
    return *next == '\n' && next < end ? next + 1 : at;
}

/* The traceback, or the last lines of the output: at most four of them, unless no table follows that
 * has the traceback. */
static void add_last_lines(struct messages_block *out, const struct ct_failure *root,
                           bool is_alone)
{
    const int max = is_alone && root->exception[0] ? INT_MAX : LAST_LINES_MAX;
    size_t length = strnlen(root->text, sizeof root->text);
    const char *at;
    int lines = 0;

    while (length && root->text[length - 1] == '\n')
        length--;
    if (!length)
        return;
    at = root->text + length;
    /* Go back over `max` ends of lines: the last lines are shown. */
    while (at > root->text && (at[-1] != '\n' || ++lines < max))
        at--;
    if (root->exception[0])
        at = begin_at_frame(at, root->text + length);
    for (const char *label = root->exception[0] ? "traceback" : "last lines";
         length && at < root->text + length; label = "") {
        size_t rest = (size_t)(root->text + length - at);
        const char *end = memchr(at, '\n', rest);
        size_t line = end ? (size_t)(end - at) : rest;

        if (*label)
            messages_add(out, label, "%.*s", (int)line, at);
        else
            messages_append(out, "%15s%.*s\n", "", (int)line, at);
        at += line + 1;
    }
}

/* What happened to a node, or to the run before there were ranks. */
static void begin_with_node(struct messages_block *out, const struct ct_failure *root,
                            const char *what)
{
    const char *text = root->text[0] ? root->text : what;

    if (root->cause == CT_CAUSE_JOIN_TIMEOUT)
        messages_begin(out, summary_code_of(root), "%s (RendezvousTimeoutError)", text);
    else if (!root->host[0] ||
             root->cause == CT_CAUSE_UNKILLABLE) /* which names its node */
        messages_begin(out, summary_code_of(root), "%s", text);
    else
        messages_begin(out, summary_code_of(root), "node %s %s%s%s", root->host, what,
                       root->text[0] ? ": " : "", root->text);
}

/* How the rank ended, in two words, as a part of a sentence. */
static void format_end(char *dst, size_t size, const struct ct_failure *root)
{
    if (root->cause == CT_CAUSE_EXIT)
        (void)ct_format(dst, size, "exit %d", root->code);
    else
        messages_format_cause(dst, size, root);
}

/* Right after its start, or later but at the same step. */
static bool is_early(const struct summary *summary, const struct ct_failure *root)
{
    return root->step < 0 || root->uptime_ms < summary->min_uptime_ms;
}

static void begin_with_loop(struct messages_block *out, const struct summary *summary,
                            const struct ct_failure *root)
{
    const char *why = root->cause == CT_CAUSE_AGENT ? root->text : root->exception;
    char end[256];
    char uptime[MESSAGES_SPAN_MAX];
    char when[64];

    format_end(end, sizeof end, root);
    messages_format_span(uptime, root->uptime_ms);
    if (is_early(summary, root))
        (void)ct_format(when, sizeof when, "%s after start", uptime);
    else
        (void)ct_format(when, sizeof when, "at step %lld", (long long)root->step);
    messages_begin(
        out, CTRUN_E_CRASH_LOOP,
        "rank %d (%s) failed twice in the same way %s (%s%s%s): not restarting",
        root->rank, root->host, when, end, *why ? ": " : "", why);
}

static void add_loop_advice(struct messages_block *out, const struct summary *summary)
{
    const struct ct_failure *root = &summary->verdict->failures[0];
    const unsigned long long seconds = summary->min_uptime_ms / 1000;
    char option[64] = "with --min-uptime 0";
    char uptime[MESSAGES_SPAN_MAX];

    if (seconds)
        (void)ct_format(option, sizeof option, "--min-uptime %llu; with 0", seconds);
    messages_format_span(uptime, root->uptime_ms);
    if (is_early(summary, root) && seconds)
        messages_add(out, "why",
                     "same failure twice within %llu s of start, not restarting",
                     seconds);
    else if (is_early(summary, root))
        messages_add(out, "why",
                     "same failure twice, the last time %s after start, not restarting",
                     uptime);
    else
        messages_add(out, "why", "same failure twice at step %lld, not restarting",
                     (long long)root->step);
    messages_add(out, "do",
                 "fix it; a restart only helps for failures that do not happen every "
                 "time (%s ctrun always restarts)",
                 option);
}

static void begin_with_root(struct messages_block *out, const struct ct_failure *root)
{
    char what[256];
    char step[48] = "";
    char uptime[MESSAGES_SPAN_MAX];
    char code[32] = "";
    const bool is_signal = root->cause == CT_CAUSE_SIGNAL ||
                           root->cause == CT_CAUSE_OOM;

    messages_format_cause(what, sizeof what, root);
    messages_format_span(uptime, root->uptime_ms);
    if (root->step >= 0)
        (void)ct_format(step, sizeof step, " at step %lld,", (long long)root->step);
    if (is_signal)
        (void)ct_format(code, sizeof code, "   exit code %d",
                        CT_EXIT_SIGNAL + root->code);
    if (root->cause == CT_CAUSE_UNREACHABLE)
        messages_begin(out, CTRUN_E_UNREACHABLE, "%s %s", root->host, root->text);
    else if (root->rank < 0)
        begin_with_node(out, root, what);
    else if (root->cause == CT_CAUSE_HANG)
        messages_begin(out, summary_code_of(root), "rank %d (%s, pid %d) is stuck: %s",
                       root->rank, root->host, root->pid, root->text);
    else if (root->cause == CT_CAUSE_UNKILLABLE)
        messages_begin(out, summary_code_of(root),
                       "pid %d (rank %d) on %s did not die after SIGKILL", root->pid,
                       root->rank, root->host);
    else if (root->cause == CT_CAUSE_EXEC || root->cause == CT_CAUSE_AGENT)
        messages_begin(out, summary_code_of(root),
                       "rank %d (%s) could not be started: %s", root->rank, root->host,
                       root->text);
    else
        messages_begin(out, summary_code_of(root),
                       "rank %d (%s, pid %d) %s%s %s after start%s%s%s", root->rank,
                       root->host, root->pid, what, *step ? step : ",", uptime, code,
                       root->exception[0] ? ": " : "", root->exception);
}

static void add_way_advice(struct messages_block *out, const struct ct_failure *root)
{
    if (ct_facts_find(&root->facts, CT_FACT_WORKS))
        messages_add(
            out, "likely",
            "a firewall lets the port of the rendezvous through, and no other");
    messages_add(out, "do",
                 "open the ports and name them: --port-range A-B; or another network: "
                 "--net IFACE|CIDR");
}

static void add_join_advice(struct messages_block *out, const struct summary *summary)
{
    messages_add(out, "do", "look at the missing %s; longer: --rdzv-conf %s%s",
                 messages_unit(summary->counts_tasks),
                 summary->is_static ? "timeout=1200" : "join_timeout=1200",
                 summary->is_static || summary->waits_for_all
                     ? ""
                     : "; fewer: --nnodes MIN:MAX");
}

static void begin_without_worker(struct messages_block *out,
                                 const struct summary *summary)
{
    const struct ct_verdict *verdict = summary->verdict;

    switch ((enum ct_outcome)verdict->outcome) {
    case CT_OUTCOME_JOIN_TIMEOUT:
        messages_begin(out, CTRUN_E_JOIN_TIMEOUT,
                       "%u of %u %s joined in %.1f s (RendezvousTimeoutError)",
                       summary->waiting->joined, summary->min_nodes,
                       messages_unit(summary->counts_tasks),
                       (double)summary->waited_ms / 1000);
        if (summary->waiting->missing[0])
            messages_add(out, "missing", "%s", summary->waiting->missing);
        add_join_advice(out, summary);
        return;
    case CT_OUTCOME_NODES_LOST:
        messages_begin(out, CTRUN_E_PEER_LOST,
                       "fewer than %u %s are left, and no other joined in time",
                       summary->min_nodes, messages_unit(summary->counts_tasks));
        return;
    case CT_OUTCOME_CLOSED:
        messages_begin(out, CTRUN_E_CLOSED, "run '%s' is over", summary->run_id);
        return;
    case CT_OUTCOME_SUCCEEDED:
    case CT_OUTCOME_CRASH_LOOP:
    case CT_OUTCOME_FAILED: break;
    }
    messages_begin(out, CTRUN_E_EXIT, "run '%s' failed", summary->run_id);
}

/* What ended the newest earlier rounds, and which nodes were excluded in any, as it was printed then. */
static void add_past(struct messages_block *out, const struct past_failures *past)
{
    char text[1024];

    for (uint32_t i = 0; past && i < past->count; i++) {
        if (past->count - i <= PAST_MAX) {
            messages_format_stop(text, sizeof text, past->list[i]);
            messages_add(out, "earlier", "%s", text);
        }
        if (past->list[i]->culprit_fate == CT_CULPRIT_EXCLUDED ||
            past->list[i]->culprit_fate == CT_CULPRIT_BROKEN) {
            (void)messages_format_culprit(text, sizeof text, past->list[i]);
            messages_add(out, "excluded", "%s", text);
        }
    }
}

/* The order is fixed: what happened, what its node found out, the output, advice, the other
 * ranks, where the logs are. People read the first lines. */
void summary_format(struct messages_block *out, const struct summary *summary)
{
    const struct ct_verdict *verdict = summary->verdict;
    const struct ct_failure *root = &verdict->failures[0];

    if (!verdict->failure_count) {
        begin_without_worker(out, summary);
        return;
    }
    if (verdict->outcome == CT_OUTCOME_CRASH_LOOP)
        begin_with_loop(out, summary, root);
    else
        begin_with_root(out, root);
    summary_add_facts(out, &root->facts);
    if (root->cause == CT_CAUSE_UNREACHABLE)
        add_way_advice(out, root);
    if (root->rank >= 0 && root->cause != CT_CAUSE_UNKILLABLE &&
        root->cause != CT_CAUSE_HANG && root->cause != CT_CAUSE_AGENT &&
        root->cause != CT_CAUSE_EXEC)
        add_last_lines(out, root, summary->is_alone);
    if (verdict->outcome == CT_OUTCOME_CRASH_LOOP)
        add_loop_advice(out, summary);
    if (root->cause == CT_CAUSE_JOIN_TIMEOUT)
        add_join_advice(out, summary);
    if (root->error_file[0])
        messages_add(out, "error file", "%s", root->error_file);
    if (root->cause == CT_CAUSE_AGENT && (root->code == EMFILE || root->code == EAGAIN))
        messages_add(out, "do", "raise %s on %s",
                     root->code == EMFILE
                         ? "the limit of open files (ulimit -Hn)"
                         : "the limit of processes (named above)", /* fork_limit.h */
                     root->host);
    if (root->cause == CT_CAUSE_OOM)
        messages_add(out, "do",
                     "more memory, fewer loader processes, or smaller host buffers");
    if (root->cause == CT_CAUSE_EXEC && root->facts.count > 0 && /* execve() failed */
        !ct_facts_find(&root->facts, CT_FACT_DO))
        messages_add(out, "do", "check the name, PATH and the permissions on %s",
                     root->host);
    summary_add_others(out, verdict);
    summary_add_timeout(out, verdict);
    if (summary->max_restarts || verdict->restart_count)
        messages_add(out, "restarts", "%u of %u used", verdict->restart_count,
                     summary->max_restarts);
    add_past(out, summary->past);
    if (summary->log_dir)
        messages_add(out, "logs", "%s", summary->log_dir);
}
