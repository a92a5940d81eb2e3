/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/messages.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/seat.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    LINE_MAX_BYTES = 2048
};

/* Texts quote files and people: what they have in them does not steer a terminal. */
static void make_plain(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t') ||
            text[i] == '\x7f')
            text[i] = '?';
}

/* To stderr, or to who started this node of a --hosts run. */
static void write_all(const char *text, size_t length)
{
    if (seat_say(text, length))
        return;
    while (length) {
        ssize_t put = write(STDERR_FILENO, text, length);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return; /* nobody listens any more: nothing to be done about it */
        text += put;
        length -= (size_t)put;
    }
}

static void on_log(void *context, enum ctrun_log_level level, const char *line)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char text[LINE_MAX_BYTES];
    int length = ct_format(text, sizeof text, "ctrun: %s: %s\n", names[level], line);

    (void)context;
    write_all(text, length < 0 ? strlen(text) : (size_t)length);
}

void messages_open_log(const char *loglevel)
{
    enum ctrun_log_level level = CTRUN_LOG_WARN;

    if (loglevel && *loglevel && ct_log_parse_level(loglevel, &level) < 0)
        messages_say("warning: LOGLEVEL=%s is unknown; WARNING is used", loglevel);
    ct_log_set_sink(on_log, NULL, level);
}

/* ---- Blocks -------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 0))) static void append(struct messages_block *block,
                                                         const char *fmt, va_list args)
{
    size_t room = sizeof block->text - block->length;
    int length = vsnprintf(block->text + block->length, room, fmt, args);

    if (length > 0)
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
                                                        const char *level, int code,
                                                        const char *fmt, va_list args)
{
    block->length = 0;
    messages_append(block, "ctrun: %s[%s]: ", level,
                    code == -EINVAL ? ct_error_name(CTRUN_E_USAGE)
                                    : ct_error_name(code));
    append(block, fmt, args);
    messages_append(block, "\n");
}

void messages_begin(struct messages_block *block, int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    begin(block, "error", code, fmt, args);
    va_end(args);
}

void messages_begin_warning(struct messages_block *block, int code, const char *fmt,
                            ...)
{
    va_list args;

    va_start(args, fmt);
    begin(block, "warning", code, fmt, args);
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

void messages_print(const struct messages_block *block)
{
    write_all(block->text, block->length);
}

void messages_end_line(void)
{
    write_all("\n", 1);
}

void messages_error(const struct ctrun_error *err)
{
    struct messages_block block;

    messages_begin(&block, err->code, "%s", err->text);
    make_plain(block.text, block.length);
    messages_print(&block);
}

void messages_say(const char *fmt, ...)
{
    char text[LINE_MAX_BYTES] = "ctrun: ";
    size_t used = strlen(text);
    va_list args;
    int length;

    va_start(args, fmt);
    length = vsnprintf(text + used, sizeof text - used - 1, fmt, args);
    va_end(args);
    used += length < 0                                ? 0
            : (size_t)length < sizeof text - used - 1 ? (size_t)length
                                                      : sizeof text - used - 2;
    make_plain(text, used);
    text[used++] = '\n';
    write_all(text, used);
}

int messages_exit_code(int code)
{
    switch (code < 0 ? code : -code) {
    case 0: return CT_EXIT_OK;
    case CTRUN_E_USAGE: return CT_EXIT_USAGE;
    case CTRUN_E_NO_HOST:
    case CTRUN_E_JOIN_TIMEOUT:
    case CTRUN_E_UNREACHABLE:
    case CTRUN_E_PEER_LOST:
    case CTRUN_E_LEADER_LOST:
    case CTRUN_E_DNS:
    case CTRUN_E_TIMEOUT: return CT_EXIT_RETRY;
    case CTRUN_E_PORT_BUSY:
    case CTRUN_E_LOOPBACK:
    case CTRUN_E_WRONG_RUN:
    case CTRUN_E_VERSION:
    case CTRUN_E_FINGERPRINT:
    case CTRUN_E_AUTH: return CT_EXIT_REFUSED;
    case CTRUN_E_EXCLUDED:
    case CTRUN_E_UNKILLABLE: return CT_EXIT_UNKILLABLE;
    case CTRUN_E_EXEC: return CT_EXIT_NOT_FOUND;
    default: return CT_EXIT_FAILURE;
    }
}

void messages_explain_leader_lost(struct messages_block *block,
                                  const struct ctrun_error *err)
{
    messages_begin(block, err->code, "%s", err->text);
    messages_add(block, "no standby",
                 "the rendezvous ran inside one node's ctrun; the others go on without "
                 "it only when they are MIN, and fewer than MIN are left over");
    messages_add(block, "now", "local workers stopped; exit %d (worth retrying)",
                 CT_EXIT_RETRY);
    messages_add(
        block, "do",
        "run ctrund on a service node and name it in --rdzv-endpoint, or use "
        "--rdzv-backend=etcd: any node may die then; --nnodes=MIN:MAX with MIN "
        "above half of the nodes survives the loss of one");
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

void messages_format_waiting(char *dst, size_t size, const struct ct_waiting *waiting,
                             uint64_t waited_ms)
{
    if (waiting->is_standby)
        (void)ct_format(
            dst, size,
            "run is full (%u/%u): standby #%u, will take over for a lost node",
            waiting->joined, waiting->max_nodes, waiting->is_standby);
    else
        (void)ct_format(dst, size, "waiting %llu s: %u/%u nodes%s%s",
                        (unsigned long long)(waited_ms / 1000), waiting->joined,
                        waiting->joined < waiting->min_nodes ? waiting->min_nodes
                                                             : waiting->max_nodes,
                        waiting->missing[0] ? "; missing " : "", waiting->missing);
}

void messages_format_cause(char *dst, size_t size, const struct ct_failure *failure)
{
    const char *name;

    switch ((enum ct_cause)failure->cause) {
    case CT_CAUSE_EXIT:
        (void)ct_format(dst, size, "exited with %d", failure->code);
        return;
    case CT_CAUSE_SIGNAL:
    case CT_CAUSE_STOPPED:
        name = sigabbrev_np(failure->code);
        (void)ct_format(dst, size, "%s %s%s (%d)",
                        failure->cause == CT_CAUSE_SIGNAL ? "died of"
                                                          : "was stopped by",
                        name ? "SIG" : "signal", name ? name : "", failure->code);
        return;
    case CT_CAUSE_OOM:
        (void)ct_copy(dst, size, "was killed by the kernel's OOM killer (host memory)");
        return;
    case CT_CAUSE_EXEC:
        (void)ct_format(dst, size, "could not be started: %s", strerror(failure->code));
        return;
    case CT_CAUSE_NODE_LOST: (void)ct_copy(dst, size, "is gone, no goodbye"); return;
    case CT_CAUSE_UNKILLABLE:
        (void)ct_copy(dst, size, "did not die of SIGKILL");
        return;
    case CT_CAUSE_JOIN_TIMEOUT:
        (void)ct_copy(dst, size, "waited too long for the others");
        return;
    case CT_CAUSE_UNREACHABLE:
        (void)ct_copy(dst, size, "has no way to group rank 0");
        return;
    case CT_CAUSE_AGENT: (void)ct_copy(dst, size, "could not be started"); return;
    case CT_CAUSE_HANG: (void)ct_copy(dst, size, "is stuck"); return;
    case CT_CAUSE_EARLY: (void)ct_copy(dst, size, "ended early with 0"); return;
    case CT_CAUSE_NONE: break;
    }
    (void)ct_copy(dst, size, "ended");
}

/* " (10.1.0.2, ranks 8-15)": what the server has noted of a node that is lost. */
static void format_place(char *dst, size_t size, const struct ct_failure *lost)
{
    static const char label[] = "was\t";
    const char *found = strstr(lost->facts, label);

    dst[0] = '\0';
    if (!found)
        return;
    found += sizeof label - 1;
    (void)ct_format(dst, size, " (%.*s)", (int)strcspn(found, "\n"), found);
}

static void format_lost(char *dst, size_t size, const struct ct_failure *lost)
{
    char place[128];

    format_place(place, sizeof place, lost);
    (void)ct_format(dst, size,
                    "error[E_PEER_LOST]: %s%s is gone: %.200s; new round without it",
                    lost->host, place, *lost->text ? lost->text : "no goodbye");
}

void messages_format_stop(char *dst, size_t size, const struct ct_stop *stop)
{
    const struct ct_failure *cause = &stop->cause;
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
        (void)ct_format(dst, size, "stopping: %s %s; are all nodes still there?", who,
                        what);
    else if (stop->reason == CT_STOP_FAILURE)
        (void)ct_format(dst, size, "restart %u/%u: %s %s", stop->restart_count,
                        stop->max_restarts, who, what);
    else if (stop->reason == CT_STOP_NODE_LOST)
        format_lost(dst, size, cause);
    else if (stop->reason == CT_STOP_ASKED)
        (void)ct_format(dst, size, "new round: asked for on %s (%.128s)", cause->host,
                        cause->text);
    else if (*cause->text)
        (void)ct_format(dst, size, "new round: %s leaves (%.200s)", cause->host,
                        cause->text);
    else
        (void)ct_copy(dst, size, "new round: the set of nodes changes");
}
