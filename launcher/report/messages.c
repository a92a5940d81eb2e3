/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/messages.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

enum {
    LINE_MAX_BYTES = 2048,
    /* for other threads: they keep the leases of nodes, which last some seconds */
    OTHERS_WAIT_MS = 500
};

/* Set before other threads begin, and only read after that: so these need no lock. */
static struct messages_style style;
static messages_sink *sink;
static bool (*console)(const char *text, size_t length);
static pthread_t asks; /* the only thread that calls it */
static bool hurries;
static enum ctrun_log_level threshold = CTRUN_LOG_WARN;

static void on_log(void *context, enum ctrun_log_level level, const char *line);

/* False when nobody reads standard error; after that it is not waited for again until there is room. */
static bool has_room(void)
{
    static atomic_bool is_stuck;
    struct pollfd ask = {.fd = STDERR_FILENO, .events = POLLOUT};
    const uint64_t deadline_ms = ct_deadline_ms(is_stuck ? 0 : OTHERS_WAIT_MS);
    int rc;

    while ((rc = poll(&ask, 1, ct_left_ms(deadline_ms))) < 0 && errno == EINTR)
        ;
    is_stuck = rc == 0;
    return rc != 0;
}

/* One write() where the caller may wait: launchers of several nodes share a terminal, and their lines
 * must not be mixed. What has room takes PIPE_BUF bytes at once. */
static void write_to_stderr(const char *text, size_t length, bool may_wait)
{
    while (length) {
        ssize_t put;

        if (!may_wait && !has_room())
            return;
        put = write(STDERR_FILENO, text,
                    may_wait || length < PIPE_BUF ? length : PIPE_BUF);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return; /* stderr cannot be written: the rest is lost */
        text += put;
        length -= (size_t)put;
    }
}

/* The log's sink may call this from any thread. */
static void write_all(enum messages_level level, const char *text, size_t length)
{
    const bool is_own = pthread_equal(pthread_self(), asks);

    if (sink && sink(level, text, length))
        return;
    if (console && is_own && (!hurries || has_room()) && console(text, length))
        return;
    write_to_stderr(text, length, !console || (is_own && !hurries));
}

void messages_set_sink(messages_sink *new)
{
    sink = new;
}

void messages_set_console(bool (*new)(const char *text, size_t length))
{
    console = new;
    asks = pthread_self();
}

void messages_set_style(const struct messages_style *new)
{
    style = *new;
    if (style.is_verbose && threshold < CTRUN_LOG_INFO)
        ct_log_set_sink(on_log, NULL, CTRUN_LOG_INFO);
}

void messages_hurry(void)
{
    hurries = true;
}

bool messages_is_shown(enum messages_level level)
{
    return !style.is_quiet || style.is_verbose || level >= MESSAGES_WARNING;
}

void messages_stamp(char *dst)
{
    const uint64_t now_ns = ct_wall_ns();
    const time_t seconds = (time_t)(now_ns / 1000000000u);
    char day[24], zone[8];
    struct tm local;

    dst[0] = '\0';
    if (!style.has_timestamps || !localtime_r(&seconds, &local))
        return;
    (void)strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &local);
    (void)strftime(zone, sizeof zone, "%z", &local);
    (void)ct_format(dst, MESSAGES_STAMP_MAX, "%s.%03u%s ", day,
                    (unsigned)(now_ns / 1000000 % 1000), zone);
}

/* With a sink, none: its reader knows the time, and merges equal lines. */
static const char *own_stamp(char *dst)
{
    dst[0] = '\0';
    if (!sink)
        messages_stamp(dst);
    return dst;
}

static void on_log(void *context, enum ctrun_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char text[LINE_MAX_BYTES], stamp[MESSAGES_STAMP_MAX];
    int length = ct_format(text, sizeof text, "%sctrun: %s: %s\n", own_stamp(stamp),
                           names[level], line);

    (void)context;
    write_all(level == CTRUN_LOG_ERR    ? MESSAGES_ERROR
              : level == CTRUN_LOG_WARN ? MESSAGES_WARNING
                                        : MESSAGES_NEWS,
              text, length < 0 ? strlen(text) : (size_t)length);
}

void messages_open_log(const char *loglevel)
{
    if (loglevel && *loglevel && ct_log_parse_level(loglevel, &threshold) < 0)
        messages_warn(0, "LOGLEVEL=%s is unknown; WARNING is used", loglevel);
    ct_log_set_sink(on_log, NULL, threshold);
}

/* ---- Blocks -------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 0))) static void append(struct messages_block *block,
                                                         const char *fmt, va_list args)
{
    size_t room = sizeof block->text - block->length;
    int length = vsnprintf(block->text + block->length, room, fmt, args);

    if (length > 0)
        /* Truncated, not refused: most of a report is better than none. The text always ends
         * in a NUL. */
        block->length += (size_t)length < room ? (size_t)length : room - 1;
}

void messages_append(struct messages_block *block, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    append(block, fmt, args);
    va_end(args);
}

__attribute__((format(printf, 4, 0))) static void begin(struct messages_block *block,
                                                        enum messages_level level,
                                                        int code, const char *fmt,
                                                        va_list args)
{
    block->level = level;
    block->length = 0;
    messages_append(block,
                    "ctrun: %s[%s]: ", level == MESSAGES_ERROR ? "error" : "warning",
                    ct_error_name(code));
    append(block, fmt, args);
    messages_append(block, "\n");
}

void messages_begin(struct messages_block *block, int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    begin(block, MESSAGES_ERROR, code, fmt, args);
    va_end(args);
}

void messages_begin_warning(struct messages_block *block, int code, const char *fmt,
                            ...)
{
    va_list args;

    va_start(args, fmt);
    begin(block, MESSAGES_WARNING, code, fmt, args);
    va_end(args);
}

void messages_add(struct messages_block *block, const char *label, const char *fmt, ...)
{
    va_list args;

    messages_append(block, "  %-10s : ", label);
    va_start(args, fmt);
    append(block, fmt, args);
    va_end(args);
    messages_append(block, "\n");
}

void messages_keep_first_line(struct messages_block *block)
{
    const char *end = strchr(block->text, '\n');

    block->length = end ? (size_t)(end - block->text) + 1 : block->length;
    block->text[block->length] = '\0';
}

void messages_print(const struct messages_block *block)
{
    static struct messages_block stamped; /* one thread prints, and it is large */
    char stamp[MESSAGES_STAMP_MAX];

    if (block->length == 0)
        return;
    stamped.length = 0;
    messages_append(&stamped, "%s%s",
                    block->level != MESSAGES_TABLE ? own_stamp(stamp) : "",
                    block->text);
    ct_make_plain(stamped.text, true); /* it quotes files, programs and people */
    write_all(block->level, stamped.text, stamped.length);
}

void messages_error(const struct ctrun_error *err)
{
    static struct messages_block block; /* not on the stack: it may be too small */

    messages_begin(&block, err->code, "%s", err->text);
    messages_print(&block);
}

__attribute__((format(printf, 3, 0))) static void
print_line(enum messages_level level, const char *label, const char *fmt, va_list args)
{
    char text[LINE_MAX_BYTES], stamp[MESSAGES_STAMP_MAX];
    size_t used;
    int length;

    if (!messages_is_shown(level))
        return;
    (void)ct_format(text, sizeof text, "%sctrun: %s", own_stamp(stamp), label);
    used = strlen(text);
    /* one byte is kept for the newline, which a truncated line has as well */
    length = vsnprintf(text + used, sizeof text - used - 1, fmt, args);
    used += length < 0                                ? 0
            : (size_t)length < sizeof text - used - 1 ? (size_t)length
                                                      : sizeof text - used - 2;
    ct_make_plain(text, true);
    text[used++] = '\n';
    write_all(level, text, used);
}

void messages_notice(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_line(MESSAGES_NEWS, "", fmt, args);
    va_end(args);
}

void messages_warn(int code, const char *fmt, ...)
{
    char label[64];
    va_list args;

    (void)ct_format(label, sizeof label, code ? "warning[%s]: " : "warning%s: ",
                    code ? ct_error_name(code) : "");
    va_start(args, fmt);
    print_line(MESSAGES_WARNING, label, fmt, args);
    va_end(args);
}

void messages_print_line(enum messages_level level, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_line(level, "", fmt, args);
    va_end(args);
}

void messages_explain_leader_lost(struct messages_block *block,
                                  const struct ctrun_error *err, bool was_ctrund)
{
    messages_begin(block, err->code, "%s", err->text);
    messages_add(block, "now", "no worker of this node runs; exit %d (worth retrying)",
                 CT_EXIT_RETRY);
    messages_add(
        block, "do", "%s",
        was_ctrund
            ? "start again while ctrund runs; with ctrund --journal workers keep "
              "running if ctrund is back within four fifths of the lease (of "
              "--rdzv-conf: keep_alive_interval times keep_alive_max_attempt)"
            : "start again; with --ha or --rdzv-backend=etcd a run survives the loss "
              "of any node; with ctrund on another host it survives the loss of any "
              "node of the job");
}

void messages_explain_no_ha(struct messages_block *block, const struct ctrun_error *err,
                            const char *why)
{
    messages_begin(block, CTRUN_E_NO_HA, "%s", err->text);
    messages_add(block, "cause",
                 "the run's own etcd could not take the rendezvous over: %s", why);
    messages_add(block, "now", "no worker of this node runs; exit %d (worth retrying)",
                 CT_EXIT_RETRY);
    messages_add(
        block, "do",
        "start again; ctrunctl status shows when the run survives the loss of a "
        "node");
}

/* ---- Sentences ----------------------------------------------------------------------- */

void messages_format_span(char *dst, uint64_t ms)
{
    unsigned long long seconds = ms / 1000;

    if (ms < 10000)
        (void)ct_format(dst, MESSAGES_SPAN_MAX, "%llu.%llu s", seconds,
                        (unsigned long long)(ms % 1000 / 100));
    else if (seconds < 120)
        (void)ct_format(dst, MESSAGES_SPAN_MAX, "%llu s", seconds);
    else if (seconds < 7200)
        (void)ct_format(dst, MESSAGES_SPAN_MAX, "%llu min %llu s", seconds / 60,
                        seconds % 60);
    else
        (void)ct_format(dst, MESSAGES_SPAN_MAX, "%llu h %llu min", seconds / 3600,
                        seconds / 60 % 60);
}

const char *messages_unit(bool counts_tasks)
{
    return counts_tasks ? "tasks" : "nodes";
}

void messages_format_waiting(char *dst, size_t size, const struct ct_waiting *waiting,
                             bool counts_tasks, uint64_t waited_ms)
{
    if (waiting->is_spare)
        (void)ct_format(dst, size, "run is full (%u/%u): spare #%u, %s",
                        waiting->joined, waiting->max_nodes, waiting->is_spare,
                        waiting->max_nodes > 1
                            ? "will take over for a lost node"
                            : "the run has one node; for several, give --nnodes");
    else if (waiting->joined >= waiting->min_nodes &&
             waiting->joined < waiting->max_nodes && waiting->held_ms == 0)
        (void)ct_format(dst, size,
                        "waiting %llu s: enough %s have joined (%u of at most %u); "
                        "the start waits "
                        "up to %llu s for more%s%s",
                        (unsigned long long)(waited_ms / 1000),
                        messages_unit(counts_tasks), waiting->joined,
                        waiting->max_nodes,
                        (unsigned long long)((waiting->left_ms + 999) / 1000),
                        waiting->missing[0] ? "; missing " : "", waiting->missing);
    else
        (void)ct_format(dst, size, "waiting %llu s: %u/%u %s%s%s",
                        (unsigned long long)(waited_ms / 1000), waiting->joined,
                        waiting->joined < waiting->min_nodes ? waiting->min_nodes
                                                             : waiting->max_nodes,
                        messages_unit(counts_tasks),
                        waiting->missing[0] ? "; missing " : "", waiting->missing);
}

const char *messages_why_held(bool has_past)
{
    return has_past ? "earlier workers of this run may still run"
                    : "the rendezvous server was started a short time ago and cannot "
                      "know yet that no earlier workers of this run still run";
}

void messages_format_cause(char *dst, size_t size, const struct ct_failure *failure)
{
    static const char *const texts[] = {
        [CT_CAUSE_STOPPED] = "was stopped by ctrun",
        [CT_CAUSE_OOM] = "was killed by the kernel's OOM killer (host memory)",
        [CT_CAUSE_NODE_LOST] = "was lost",
        [CT_CAUSE_UNKILLABLE] = "did not die of SIGKILL",
        [CT_CAUSE_JOIN_TIMEOUT] = "waited too long for the others",
        [CT_CAUSE_RAISED] = "reported an error",
        [CT_CAUSE_UNREACHABLE] = "cannot reach group rank 0",
        [CT_CAUSE_AGENT] = "could not be started",
        [CT_CAUSE_HANG] = "is stuck",
        [CT_CAUSE_EARLY] = "ended early with 0",
    };
    const uint8_t cause = failure->cause;
    const char *text = cause < sizeof texts / sizeof *texts ? texts[cause] : NULL;
    const char *name = ct_signal_name(failure->code);

    if (cause == CT_CAUSE_EXIT)
        (void)ct_format(dst, size, "exited with %d", failure->code);
    else if (cause == CT_CAUSE_SIGNAL)
        (void)ct_format(dst, size, "died of %s%s (%d)", name ? "SIG" : "signal",
                        name ? name : "", failure->code);
    else if (cause == CT_CAUSE_EXEC)
        (void)ct_format(dst, size, "could not be started: %s", strerror(failure->code));
    else
        (void)ct_copy(dst, size, text ? text : "ended");
}

static void format_lost(char *dst, size_t size, const struct ct_failure *lost)
{
    const char *place = ct_facts_find(&lost->facts, CT_FACT_WAS);
    char step[48] = "";

    if (lost->step >= 0)
        (void)ct_format(step, sizeof step, "; its last known step is %lld",
                        (long long)lost->step);
    (void)ct_format(dst, size,
                    "warning[E_PEER_LOST]: %s%s%s%s is gone: %.200s%s; the next round "
                    "starts when enough nodes have joined",
                    lost->host, place ? " (" : "", place ? place : "", place ? ")" : "",
                    *lost->text ? lost->text : "no reason is known", step);
}

void messages_format_stop(char *dst, size_t size, const struct ct_stop *stop)
{
    const struct ct_failure *cause = &stop->cause;
    const char *joined;
    char what[256];
    char who[CT_HOST_MAX + 32];

    messages_format_cause(what, sizeof what, cause);
    if (cause->rank >= 0)
        (void)ct_format(who, sizeof who, "rank %d on %s", cause->rank, cause->host);
    else
        (void)ct_format(who, sizeof who, "node %s", cause->host);
    if (stop->is_final)
        (void)ct_format(dst, size, "stopping: %s%s%s",
                        cause->cause == CT_CAUSE_NONE ? "the run was ended" : who,
                        cause->cause == CT_CAUSE_NONE ? "" : " ",
                        cause->cause == CT_CAUSE_NONE ? "" : what);
    else if (stop->reason == CT_STOP_UNDECIDED)
        (void)ct_format(dst, size,
                        "stopping: %s %s; asking whether all nodes are still there",
                        who, what);
    else if (stop->reason == CT_STOP_FAILURE)
        (void)ct_format(dst, size, "restart %u/%u: %s %s%s%s", stop->restart_count,
                        stop->max_restarts, who, what, *cause->exception ? ": " : "",
                        cause->exception);
    else if (stop->reason == CT_STOP_NODE_LOST)
        format_lost(dst, size, cause);
    else if (stop->reason == CT_STOP_ASKED)
        (void)ct_format(dst, size, "new round: asked for on %s (%.128s)", cause->host,
                        cause->text);
    else if (stop->reason == CT_STOP_NETWORK)
        (void)ct_format(dst, size, "new round on another network: %s %.256s",
                        cause->host, cause->text);
    else if (*cause->text)
        (void)ct_format(dst, size, "new round: %s leaves (%.200s)", cause->host,
                        cause->text);
    else if ((joined = ct_facts_find(&cause->facts, CT_FACT_JOINED)))
        (void)ct_format(dst, size, "new round: joined: %.256s", joined);
    else
        (void)ct_copy(dst, size, "new round: the set of nodes changes");
}

/* The node's last hardware fault, and whether it is excluded or why not. */
static void format_broken(char *dst, size_t size, const struct ct_stop *stop)
{
    const char *evidence = ct_facts_find(&stop->cause.facts, CT_FACT_HARDWARE);
    const char *stays = stop->culprit_fate == CT_CULPRIT_BROKEN_KEPT
                            ? "but is not excluded: it serves the rendezvous"
                        : stop->culprit_fate == CT_CULPRIT_BROKEN_NEEDED
                            ? "but is not excluded: without it fewer nodes than the "
                              "minimum of --nnodes would be left"
                            : "and is excluded";

    (void)ct_format(
        dst, size,
        "%s has had as many hardware faults as --exclude-node-after allows, "
        "%s; the last one: %s",
        stop->culprit, stays, evidence ? evidence : "not known");
}

bool messages_format_culprit(char *dst, size_t size, const struct ct_stop *stop)
{
    switch ((enum ct_culprit_fate)stop->culprit_fate) {
    case CT_CULPRIT_EXCLUDED:
        (void)ct_format(dst, size,
                        "%s excluded: it failed first in two rounds in a row, and a "
                        "spare takes its place",
                        stop->culprit);
        return true;
    case CT_CULPRIT_KEPT:
        (void)ct_format(
            dst, size,
            "%s failed first in two rounds in a row, but is not excluded: it serves "
            "the "
            "rendezvous; ctrund on another host, or an endpoint on another node, lets "
            "a "
            "spare take its place",
            stop->culprit);
        return true;
    case CT_CULPRIT_BROKEN:
    case CT_CULPRIT_BROKEN_KEPT:
    case CT_CULPRIT_BROKEN_NEEDED: format_broken(dst, size, stop); return true;
    case CT_CULPRIT_NONE: break;
    }
    return false;
}
