/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/fleet_root.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/guard.h"
#include "agent/signals.h"
#include "launcher/fleet_screen.h"
#include "launcher/messages.h"
#include "launcher/sender.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    SLACK_MS = 10000,    /* above the grace time, for the way there and back */
    HURRY_MS = 5000,     /* after the second Ctrl-C */
    KILL_MS = 2000,      /* after the third */
    SAME_SIGNAL_MS = 200 /* two deliveries of one Ctrl-C, as in the agent */
};

enum root_state {
    ROOT_CALLING,
    ROOT_STAGING,
    ROOT_SERVING,
    ROOT_RUNNING,
};

struct root {
    const struct fleet_root_options *options;
    const struct fleet_job *job;
    enum root_state state;
    struct loop *loop;
    struct signals *signals;
    struct loop_timer *deadline; /* for what has to end, or to answer */
    struct fleet_screen *screen;
    struct fleet_part *part;
    struct fleet_stage *stage; /* NULL: nothing is staged */
    uint32_t server;           /* place of the host that serves */
    bool has_started;          /* a round began somewhere */
    bool is_ending;            /* the deadline runs */
    bool has_succeeded;
    int code;   /* of the first host that ended badly */
    int signal; /* the first one that ends the run */
    int interrupts;
    int last_signal;
    uint64_t last_signal_ms;
};

/* ---- Counting ---------------------------------------------------------------------------- */

static uint32_t count(const struct root *root, enum fleet_host_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < root->job->total; i++)
        n += fleet_part_state(root->part, i) == state;
    return n;
}

static const char *host(const struct root *root, uint32_t place)
{
    return fleet_job_host(root->job, place);
}

static void end(struct root *root, int code)
{
    if (root->code == 0)
        root->code = code;
    loop_stop(root->loop);
}

/* What is left must end by then. */
static void expect_end(struct root *root, uint64_t limit_ms)
{
    root->is_ending = true;
    loop_timer_set(root->deadline, limit_ms);
}

static void tell(struct root *root, enum fleet_kind kind, uint32_t place, int code,
                 const char *text)
{
    const struct fleet_message message = {.kind = kind,
                                          .host = place,
                                          .code = code,
                                          .data = text,
                                          .length = strlen(text)};

    (void)fleet_part_tell(root->part, &message);
}

/* ---- Before the run ---------------------------------------------------------------------- */

static void go(struct root *root, const char *endpoint)
{
    root->state = ROOT_RUNNING;
    loop_timer_stop(root->deadline);
    tell(root, FLEET_GO, 0, 0, endpoint);
}

static void begin(struct root *root)
{
    uint32_t first = 0;

    while (fleet_part_state(root->part, first) != FLEET_HOST_READY)
        first++;
    if (!root->options->serves) {
        go(root, "");
        return;
    }
    root->state = ROOT_SERVING;
    root->server = first;
    loop_timer_set(root->deadline, root->job->reach_ms);
    tell(root, FLEET_SERVE, first, 0, "");
}

/* All hosts of the run are there. */
static void gather(struct root *root)
{
    if (!root->stage) {
        begin(root);
        return;
    }
    root->state = ROOT_STAGING;
    fleet_stage_begin(root->stage);
}

static void on_stage_over(void *context)
{
    struct root *root = context;

    /* The last one to be waited for may be lost: that has been told, and ends the run. */
    if (count(root, FLEET_HOST_READY) >= root->options->min_nodes)
        begin(root);
}

static void on_stage_fail(void *context, const struct ctrun_error *err)
{
    struct root *root = context;

    fleet_screen_say(root->screen, "error[%s]: %s", ct_error_name(err->code),
                     err->text);
    end(root, messages_exit_code(err->code));
}

static void on_stage_say(void *context, const char *text)
{
    const struct root *root = context;

    fleet_screen_say(root->screen, "%s", text);
}

/* Everybody was called: there may be enough. */
static void check_called(struct root *root)
{
    const uint32_t missing = count(root, FLEET_HOST_CALLED);
    const uint32_t ready = count(root, FLEET_HOST_READY);
    const uint32_t lost = root->job->total - ready - missing;

    if (root->state != ROOT_CALLING && root->state != ROOT_STAGING)
        return;
    if (ready + missing < root->options->min_nodes) {
        if (ready + missing > 0)
            fleet_screen_say(root->screen,
                             "%u of %u hosts %s missing; --nnodes=MIN:MAX would go on "
                             "with fewer",
                             lost, root->job->total, lost == 1 ? "is" : "are");
        end(root, CT_EXIT_RETRY);
    } else if (missing == 0 && root->state == ROOT_CALLING) {
        gather(root);
    }
}

static void take_failed(struct root *root, const struct fleet_message *message)
{
    fleet_screen_say(root->screen, "error[%s]: %s: %.*s", ct_error_name(message->code),
                     host(root, message->host), (int)message->length,
                     (const char *)message->data);
    if (root->code == 0 &&
        root->job->total - count(root, FLEET_HOST_FAILED) < root->options->min_nodes)
        root->code = messages_exit_code(message->code);
    check_called(root);
}

static void take_serving(struct root *root, const struct fleet_message *message)
{
    char endpoint[512];

    if (root->state != ROOT_SERVING)
        return;
    (void)ct_format(endpoint, sizeof endpoint, "%.*s", (int)message->length,
                    (const char *)message->data);
    go(root, endpoint);
}

/* ---- The run ----------------------------------------------------------------------------- */

/* The others cannot go on without it, and may wait for it for long: nobody has told them. */
static void check_enough(struct root *root, uint32_t place, const char *what)
{
    if (root->is_ending || count(root, FLEET_HOST_READY) >= root->options->min_nodes ||
        count(root, FLEET_HOST_READY) == 0)
        return;
    expect_end(root, root->options->grace_ms + SLACK_MS);
    if (root->has_started)
        return; /* the rendezvous knows */
    fleet_screen_say(root->screen, "%s %s before the run began: stopping the others",
                     host(root, place), what);
    tell(root, FLEET_SIGNAL, 0, SIGTERM, "");
}

static void take_ended(struct root *root, const struct fleet_message *message)
{
    char what[64];

    if (message->code == 0) {
        root->has_succeeded = true; /* the others are about to end as well */
        if (!root->is_ending)
            expect_end(root, root->options->grace_ms + SLACK_MS);
        return;
    }
    if (root->code == 0)
        root->code = message->code;
    (void)ct_format(what, sizeof what, "ended with %d", message->code);
    check_enough(root, message->host, what);
}

static void take_lost(struct root *root, const struct fleet_message *message)
{
    if (root->signal == 0)
        fleet_screen_say(root->screen, "error[%s]: %s is lost: %.*s",
                         ct_error_name(message->code), host(root, message->host),
                         (int)message->length, (const char *)message->data);
    if (root->state == ROOT_RUNNING)
        check_enough(root, message->host, "was lost");
    else if (root->state == ROOT_CALLING || root->state == ROOT_STAGING)
        check_called(root);
    else if (message->host == root->server ||
             count(root, FLEET_HOST_READY) < root->options->min_nodes)
        end(root, messages_exit_code(message->code));
    if (root->code == 0 && count(root, FLEET_HOST_READY) == 0)
        root->code = CT_EXIT_RETRY;
}

/* Nodes leave one after the other, and those that are left see that: no news after a signal, but
 * errors and how long there is left. */
static bool is_news(const struct root *root, const struct fleet_message *message)
{
    static const char countdown[] = "ctrun: stopping: ";
    const size_t length = sizeof countdown - 1;

    return root->signal == 0 ||
           memmem(message->data, message->length, "error[", strlen("error[")) ||
           (message->length > length && memcmp(message->data, countdown, length) == 0);
}

static void on_message(void *context, const struct fleet_message *message)
{
    struct root *root = context;

    switch (message->kind) {
    case FLEET_READY: check_called(root); break;
    case FLEET_FAILED: take_failed(root, message); break;
    case FLEET_SERVING: take_serving(root, message); break;
    case FLEET_WORDS:
        if (!is_news(root, message))
            break;
        __attribute__((fallthrough));
    case FLEET_OUTPUT: fleet_screen_show(root->screen, message); break;
    case FLEET_STARTED: root->has_started = true; break;
    case FLEET_NEED:
    case FLEET_STAGING:
    case FLEET_STAGED: break;
    case FLEET_ENDED: take_ended(root, message); break;
    case FLEET_LOST: take_lost(root, message); break;
    case FLEET_JOB:
    case FLEET_SERVE:
    case FLEET_GO:
    case FLEET_SIGNAL:
    case FLEET_STAGE:
    case FLEET_PIECE: break;
    }
    if (root->stage && root->state == ROOT_STAGING)
        fleet_stage_take(root->stage, message);
}

static void on_room(void *context)
{
    const struct root *root = context;

    fleet_stage_room(root->stage);
}

static void on_over(void *context)
{
    const struct root *root = context;

    if (root->signal)
        fleet_screen_say(root->screen,
                         "stopped by SIG%s (%d); nothing is left on any host",
                         sigabbrev_np(root->signal), root->signal);
    loop_stop(root->loop);
}

static void on_full(void *context, bool is_full)
{
    const struct root *root = context;

    fleet_part_pause(root->part, is_full);
}

/* Who has not ended in time. Their processes see the connection end and are killed there. */
static void on_deadline(void *context)
{
    struct root *root = context;
    char list[1024] = "";

    for (uint32_t i = 0; i < root->job->total; i++)
        if (fleet_part_state(root->part, i) == FLEET_HOST_READY) {
            const size_t used = strlen(list);

            (void)ct_format(list + used, sizeof list - used, "%s%s", used ? "," : "",
                            host(root, i));
        }
    if (root->state == ROOT_SERVING)
        fleet_screen_say(root->screen, "error[E_TIMEOUT]: the first host does not say "
                                       "where it serves the rendezvous");
    else if (*list)
        fleet_screen_say(root->screen,
                         "error[E_TIMEOUT]: no word of the end of %s: cutting the "
                         "connection, which kills what is left there",
                         list);
    end(root, CT_EXIT_RETRY);
}

/* ---- Signals ----------------------------------------------------------------------------- */

static bool is_copy(struct root *root, int signal)
{
    const uint64_t now_ms = ct_now_ms();
    const bool is_same = signal == root->last_signal &&
                         now_ms - root->last_signal_ms < SAME_SIGNAL_MS;

    if (!is_same) {
        root->last_signal = signal;
        root->last_signal_ms = now_ms;
    }
    return is_same;
}

static bool ends_run(const struct fleet_root_options *options, int signal)
{
    char name[24];
    const char *rest = options->signals;
    size_t length;

    (void)ct_format(name, sizeof name, "SIG%s",
                    sigabbrev_np(signal) ? sigabbrev_np(signal) : "?");
    for (const char *item; (item = ct_next_field(&rest, ',', &length));) {
        while (length && *item == ' ') {
            item++;
            length--;
        }
        if (length == strlen(name) && strncmp(item, name, length) == 0)
            return true;
    }
    return false;
}

static void end_by_signal(struct root *root, int signal)
{
    if (root->signal == 0)
        root->signal = signal;
    root->interrupts += signal == SIGINT;
    if (root->state != ROOT_RUNNING) {
        end(root, CT_EXIT_SIGNAL + signal);
        return;
    }
    tell(root, FLEET_SIGNAL, 0, signal, "");
    expect_end(root, root->interrupts > 2    ? KILL_MS
                     : root->interrupts == 2 ? HURRY_MS
                                             : root->options->grace_ms + SLACK_MS);
}

static void on_signal(void *context, int signal, pid_t sender)
{
    struct root *root = context;
    char text[SENDER_TEXT_MAX];

    if (signal == SIGCHLD) {
        fleet_part_reap(root->part);
        return;
    }
    if (is_copy(root, signal))
        return;
    if (ends_run(root->options, signal)) {
        root->interrupts += signal == SIGINT;
        sender_describe(text, signal, sender, root->interrupts);
        root->interrupts -= signal == SIGINT;
        fleet_screen_say(root->screen, "%s", text);
        end_by_signal(root, signal);
        return;
    }
    sender_describe_passed(text, signal, sender);
    fleet_screen_say(root->screen, "%s", text);
    if (root->state == ROOT_RUNNING)
        tell(root, FLEET_SIGNAL, 0, signal, "");
}

/* ---- Life -------------------------------------------------------------------------------- */

static int open_signals(struct root *root)
{
    int list[NSIG];
    size_t n = 0;

    for (int i = 1; i < NSIG; i++)
        if (i == SIGUSR1 || i == SIGUSR2 || ends_run(root->options, i))
            list[n++] = i;
    return signals_open(&root->signals, root->loop, list, n, on_signal, root);
}

static int open_stage(struct root *root, struct ctrun_error *err)
{
    const struct fleet_stage_options stage = {.loop = root->loop,
                                              .job = root->job,
                                              .plan = root->options->stage,
                                              .part = root->part,
                                              .context = root,
                                              .on_say = on_stage_say,
                                              .on_over = on_stage_over,
                                              .on_fail = on_stage_fail};

    root->stage = fleet_stage_open(&stage);
    return root->stage ? 0 : ct_fail(err, -ENOMEM, "--stage: out of memory");
}

static int open_all(struct root *root, struct ctrun_error *err)
{
    const struct fleet_screen_options screen = {
        .loop = root->loop, .job = root->job, .context = root, .on_full = on_full};
    const struct fleet_part_options part = {.loop = root->loop,
                                            .job = root->job,
                                            .here = root->options->here,
                                            .context = root,
                                            .on_message = on_message,
                                            .on_room = on_room,
                                            .on_over = on_over};

    if (!(root->deadline = loop_timer_open(root->loop, on_deadline, root)) ||
        fleet_screen_open(&root->screen, &screen) < 0 ||
        fleet_part_create(&root->part, &part) < 0 || open_signals(root) < 0)
        return ct_fail(err, -ENOMEM, "--hosts: out of memory");
    return root->options->stage->scan ? open_stage(root, err) : 0;
}

static int exit_code(const struct root *root)
{
    int code = root->has_succeeded ? CT_EXIT_OK : root->code;

    if (root->signal && code == 0)
        code = CT_EXIT_SIGNAL + root->signal;
    return code && root->options->torchrun_exit_code ? CT_EXIT_FAILURE : code;
}

static int root_main(void *context)
{
    struct root root = {.options = context,
                        .job = ((const struct fleet_root_options *)context)->job};
    struct ctrun_error err;
    int code = CT_EXIT_FAILURE;

    (void)signal(SIGPIPE, SIG_IGN); /* a connection that ends is told by its write */
    if (loop_create(&root.loop) < 0)
        return code;
    if (open_all(&root, &err) == 0) {
        fleet_part_start(root.part);
        loop_run(root.loop);
        code = exit_code(&root);
    } else {
        messages_error(&err);
    }
    signals_close(root.signals);
    fleet_stage_close(root.stage);
    fleet_part_destroy(root.part);
    fleet_screen_close(root.screen);
    loop_timer_close(root.deadline);
    (void)loop_destroy(root.loop);
    return code;
}

int fleet_root_run(const struct fleet_root_options *options, struct ctrun_error *err)
{
    union { /* guard_run() passes it through untouched */
        const struct fleet_root_options *in;
        void *out;
    } context = {.in = options};

    for (int i = 1; i < NSIG; i++)
        if (ends_run(options, i))
            sender_heed(i);
    return guard_run(root_main, context.out, err);
}
