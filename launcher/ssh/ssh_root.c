/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_root.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "agent/guard/guard.h"
#include "agent/loop/signals.h"
#include "launcher/report/exit_status.h"
#include "launcher/report/messages.h"
#include "launcher/report/signal_sender.h"
#include "launcher/ssh/ssh_console.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

enum {
    SLACK_MS = 10000,     /* above the grace time, for the messages */
    HURRY_MS = 5000,      /* after the second Ctrl-C */
    KILL_MS = 2000,       /* after the third */
    SAME_SIGNAL_MS = 200, /* one Ctrl-C may arrive twice, as in the agent */
    LIST_BYTES = 1024,
};

enum root_state {
    ROOT_CALLING,
    ROOT_STAGING,
    ROOT_SERVING,
    ROOT_RUNNING,
};

struct root {
    const struct ssh_root_options *options;
    const struct ssh_job *job;
    enum root_state state;
    struct loop *loop;
    struct signals *signals;
    struct loop_timer *deadline; /* for hosts that must end or answer */
    struct ssh_console *console;
    struct ssh_subtree *subtree;
    struct ssh_stage *stage; /* NULL: nothing is staged */
    uint32_t server;         /* place of the serving host */
    bool has_started;        /* a round has begun on a host */
    bool is_ending;          /* the deadline runs */
    bool gives_up_saving; /* hosts that still write are awaited no longer than others */
    bool has_named_saving;
    uint64_t saving_end_ms; /* by then they have written, or given up */
    bool has_good_end;      /* a host has ended with 0; see has_succeeded() */
    int flaw; /* exit code of a run that has succeeded; 0: no host has another one */
    bool has_verdict; /* `code` is the run's own (SSH_ENDED) */
    int code;         /* of the first host that failed */
    int signal;       /* the first signal that ends the run */
    int interrupts;
    int last_signal;
    uint64_t last_signal_ms;
};

/* The exit code of this process for an error; exit_code() applies --exit-style. */
static int status_of(int error)
{
    return exit_status(&(struct exit_end){.error = error}, EXIT_STYLE_OWN);
}

/* ---- Counting ---------------------------------------------------------------------------- */

static uint32_t count(const struct root *root, enum ssh_host_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < root->job->total; i++)
        n += ssh_subtree_state(root->subtree, i) == state;
    return n;
}

/* Hosts whose ctrun runs. */
static uint32_t count_live(const struct root *root)
{
    return count(root, SSH_HOST_READY) + count(root, SSH_HOST_SAVING);
}

static const char *host(const struct root *root, uint32_t place)
{
    return ssh_job_host(root->job, place);
}

/* Appends the hosts in this state. */
static void list_hosts(char *list, size_t size, const struct root *root,
                       enum ssh_host_state state, const char *note)
{
    for (uint32_t i = 0; i < root->job->total; i++)
        if (ssh_subtree_state(root->subtree, i) == state)
            (void)ct_append_item(list, size, ",", "%s%s", host(root, i), note);
}

/* Ends the run. The first code stays: later codes are consequences. */
static void end(struct root *root, int code)
{
    if (root->code == 0)
        root->code = code;
    loop_stop(root->loop);
}

/* All hosts that still run must end within limit_ms. */
static void expect_end(struct root *root, uint64_t limit_ms)
{
    root->is_ending = true;
    loop_timer_set(root->deadline, limit_ms);
}

static void send_all(struct root *root, enum ssh_kind kind, uint32_t place, int code,
                     const char *text)
{
    const struct ssh_message message = ssh_message_of_text(kind, place, code, text);

    (void)ssh_subtree_send(root->subtree, &message);
}

/* ---- Before the run ---------------------------------------------------------------------- */

static void go(struct root *root, const char *endpoint)
{
    root->state = ROOT_RUNNING;
    loop_timer_stop(root->deadline);
    send_all(root, SSH_GO, 0, 0, endpoint);
}

static void begin(struct root *root)
{
    uint32_t first = 0;

    while (ssh_subtree_state(root->subtree, first) != SSH_HOST_READY)
        first++;
    if (!root->options->serves) {
        go(root, "");
        return;
    }
    root->state = ROOT_SERVING;
    root->server = first;
    loop_timer_set(root->deadline, root->job->reach_ms);
    send_all(root, SSH_SERVE, first, 0, "");
}

/* Called when all hosts of the run are READY. */
static void gather(struct root *root)
{
    if (!root->stage) {
        begin(root);
        return;
    }
    root->state = ROOT_STAGING;
    ssh_stage_begin(root->stage);
}

static void on_stage_over(void *context)
{
    struct root *root = context;

    /* Staging may be over because the last awaited host was lost: on_lost() has handled that. */
    if (count(root, SSH_HOST_READY) >= root->options->min_nodes)
        begin(root);
}

static void on_stage_fail(void *context, const struct ctrun_error *err)
{
    struct root *root = context;

    ssh_console_print(root->console, MESSAGES_ERROR, "error[%s]: %s",
                      ct_error_name(err->code), err->text);
    end(root, status_of(err->code));
}

static void on_stage_notice(void *context, const char *text)
{
    const struct root *root = context;

    ssh_console_print(root->console, MESSAGES_NEWS, "%s", text);
}

/* Ends the run if too few hosts are left; goes on when all hosts have answered and enough are
 * READY. */
static void check_called(struct root *root)
{
    const uint32_t missing = count(root, SSH_HOST_CALLED);
    const uint32_t ready = count(root, SSH_HOST_READY);
    const uint32_t lost = root->job->total - ready - missing;
    char unknown[48] = "";

    if (root->state != ROOT_CALLING && root->state != ROOT_STAGING)
        return;
    if (ready + missing < root->options->min_nodes) {
        if (missing > 0)
            (void)ct_format(unknown, sizeof unknown, ", %u %s not answered yet",
                            missing, missing == 1 ? "has" : "have");
        if (ready + missing > 0)
            ssh_console_print(root->console, MESSAGES_NEWS,
                              "%u of %u hosts %s missing%s; --nnodes=MIN:MAX would "
                              "continue with fewer",
                              lost, root->job->total, lost == 1 ? "is" : "are",
                              unknown);
        end(root, CT_EXIT_RETRY);
    } else if (missing == 0 && root->state == ROOT_CALLING) {
        gather(root);
    }
}

static void on_failed(struct root *root, const struct ssh_message *message)
{
    ssh_console_print(root->console, MESSAGES_ERROR, "error[%s]: %s: %.*s",
                      ct_error_name(message->code), host(root, message->host),
                      (int)message->length, (const char *)message->data);
    if (root->code == 0 &&
        root->job->total - count(root, SSH_HOST_FAILED) < root->options->min_nodes)
        root->code = status_of(message->code);
    check_called(root);
}

static void on_serving(struct root *root, const struct ssh_message *message)
{
    char endpoint[512];

    if (root->state != ROOT_SERVING)
        return;
    (void)ct_format(endpoint, sizeof endpoint, "%.*s", (int)message->length,
                    (const char *)message->data);
    go(root, endpoint);
}

/* ---- The run ----------------------------------------------------------------------------- */

/* Stops the other hosts if too few are left: before the first round they do not know that host
 * `place` is missing, and would wait for it. */
static void check_enough(struct root *root, uint32_t place, const char *what)
{
    if (root->is_ending || count(root, SSH_HOST_READY) >= root->options->min_nodes ||
        count_live(root) == 0)
        return;
    expect_end(root, root->options->grace_ms + SLACK_MS);
    if (root->has_started)
        return; /* the rendezvous handles the loss */
    ssh_console_print(root->console, MESSAGES_NEWS,
                      "%s %s before the run began: stopping the others",
                      host(root, place), what);
    send_all(root, SSH_SIGNAL, 0, SIGTERM, "");
}

/* A host is gone: goes on with the others, or ends the run if they are too few. `code`: CTRUN_E_*. */
static void check_without(struct root *root, uint32_t place, int code, const char *what)
{
    if (root->state == ROOT_RUNNING)
        check_enough(root, place, what);
    else if (root->state == ROOT_CALLING || root->state == ROOT_STAGING)
        check_called(root);
    else if (place == root->server ||
             count(root, SSH_HOST_READY) < root->options->min_nodes)
        end(root, status_of(code));
}

/* The run has succeeded, and the other hosts end soon, too; before its first round only if it was over when they came. */
static void on_good_end(struct root *root)
{
    root->has_good_end = true;
    if (!root->is_ending &&
        (root->has_started || count(root, SSH_HOST_READY) < root->options->min_nodes))
        expect_end(root, root->options->grace_ms + SLACK_MS);
}

static void on_ended(struct root *root, const struct ssh_message *message)
{
    char what[64];

    if (root->state != ROOT_RUNNING) {
        ssh_console_print(
            root->console, MESSAGES_ERROR,
            "error[E_PROTOCOL]: %s says that its ctrun has ended (%d), but "
            "none was started there",
            host(root, message->host), message->code);
        if (root->code == 0 &&
            count(root, SSH_HOST_READY) + count(root, SSH_HOST_CALLED) <
                root->options->min_nodes)
            root->code = status_of(CTRUN_E_PROTOCOL);
        check_without(root, message->host, CTRUN_E_PROTOCOL, "");
        return;
    }
    if (message->code == 0) {
        on_good_end(root);
        return;
    }
    /* The run's code replaces the code of a host that left the run earlier. */
    if (root->code == 0 || (message->length > 0 && !root->has_verdict))
        root->code = message->code;
    root->has_verdict |= message->length > 0;
    if (message->length > 1)
        root->flaw = message->code;
    (void)ct_format(what, sizeof what, "ended with %d", message->code);
    check_enough(root, message->host, what);
}

static void on_lost(struct root *root, const struct ssh_message *message)
{
    if (root->signal == 0)
        ssh_console_print(root->console, MESSAGES_ERROR, "error[%s]: %s is lost: %.*s",
                          ct_error_name(message->code), host(root, message->host),
                          (int)message->length, (const char *)message->data);
    check_without(root, message->host, message->code, "was lost");
    if (root->code == 0 && count_live(root) == 0)
        root->code = CT_EXIT_RETRY;
}

static void on_saving(struct root *root, const struct ssh_message *message)
{
    const uint64_t limit_ms = message->code > 0 ? (uint64_t)message->code * 1000 : 0;
    const uint64_t end_ms = ct_now_ms() + limit_ms + SLACK_MS;

    if (end_ms > root->saving_end_ms)
        root->saving_end_ms = end_ms;
    if (!root->is_ending && count(root, SSH_HOST_READY) == 0)
        expect_end(root, root->options->grace_ms + SLACK_MS);
}

/* After a signal only errors and the countdown are printed: nodes leave one by one, and the others
 * would report each of them. */
static bool is_news(const struct root *root, const struct ssh_message *message)
{
    return root->signal == 0 || message->code == MESSAGES_ERROR ||
           message->code == MESSAGES_COUNTDOWN;
}

static void on_message(void *context, const struct ssh_message *message)
{
    struct root *root = context;

    if (message->kind == SSH_ENDED || message->kind == SSH_LOST)
        ssh_console_end(root->console, message->host);
    switch (message->kind) {
    case SSH_READY: check_called(root); break;
    case SSH_FAILED: on_failed(root, message); break;
    case SSH_SERVING: on_serving(root, message); break;
    case SSH_WORDS:
        if (!is_news(root, message))
            break;
        __attribute__((fallthrough));
    case SSH_OUTPUT: ssh_console_show(root->console, message); break;
    case SSH_STARTED: root->has_started = true; break;
    case SSH_SAVING: on_saving(root, message); break;
    case SSH_NEED:
    case SSH_STAGING:
    case SSH_STAGED: break;
    case SSH_ENDED: on_ended(root, message); break;
    case SSH_LOST: on_lost(root, message); break;
    case SSH_JOB:
    case SSH_SERVE:
    case SSH_GO:
    case SSH_SIGNAL:
    case SSH_STAGE:
    case SSH_PIECE: break;
    }
    /* ssh_stage gets LOST and FAILED, too: it stops waiting for that host. */
    if (root->stage && root->state == ROOT_STAGING)
        ssh_stage_on_message(root->stage, message);
}

static void on_room(void *context)
{
    const struct root *root = context;

    ssh_stage_room(root->stage);
}

static void on_over(void *context)
{
    const struct root *root = context;
    char lost[LIST_BYTES] = "", name[CT_SIGNAL_NAME_MAX];

    list_hosts(lost, sizeof lost, root, SSH_HOST_LOST, "");
    if (root->signal && *lost)
        ssh_console_print(root->console, MESSAGES_NEWS,
                          "stopped by %s (%d); the connection to %s was lost: "
                          "something may still run there",
                          ct_signal_format(name, root->signal), root->signal, lost);
    else if (root->signal)
        ssh_console_print(root->console, MESSAGES_NEWS,
                          "stopped by %s (%d); nothing is left on any host",
                          ct_signal_format(name, root->signal), root->signal);
    loop_stop(root->loop);
}

static void on_full(void *context, bool is_full)
{
    const struct root *root = context;

    ssh_subtree_pause(root->subtree, is_full);
}

/* True while a host may still write held checkpoints: the next deadline is set. */
static bool awaits_saving(struct root *root)
{
    const uint64_t now_ms = ct_now_ms();
    char list[LIST_BYTES] = "";
    uint64_t left_ms;

    list_hosts(list, sizeof list, root, SSH_HOST_SAVING, "");
    if (root->gives_up_saving || !*list || now_ms >= root->saving_end_ms)
        return false;
    left_ms = root->saving_end_ms - now_ms;
    if (!root->has_named_saving)
        ssh_console_print(
            root->console, MESSAGES_NEWS,
            "held checkpoints of %s are not on the disk yet: waiting for at "
            "most %.0f s",
            list, (double)left_ms / 1000);
    root->has_named_saving = true;
    expect_end(root, left_ms < SLACK_MS ? left_ms : SLACK_MS);
    return true;
}

/* Names the hosts that have not ended in time. Their relays see the connection end and kill what
 * runs there. */
static void on_deadline(void *context)
{
    struct root *root = context;
    char list[LIST_BYTES] = "";

    if (awaits_saving(root))
        return;
    list_hosts(list, sizeof list, root, SSH_HOST_READY, "");
    list_hosts(list, sizeof list, root, SSH_HOST_SAVING, " (writes held checkpoints)");
    if (root->state == ROOT_SERVING)
        ssh_console_print(root->console, MESSAGES_ERROR,
                          "error[E_TIMEOUT]: %s did not report the address of the "
                          "rendezvous within %g s (--hosts-timeout)",
                          host(root, root->server), root->job->reach_ms / 1000.0);
    else if (*list)
        ssh_console_print(
            root->console, MESSAGES_ERROR,
            "error[E_TIMEOUT]: %s did not report its end in time; closing "
            "the connection and killing what still runs there",
            list);
    end(root, CT_EXIT_RETRY);
}

/* ---- Signals ----------------------------------------------------------------------------- */

/* True for a second copy of a signal: the guard passes it on, and a scheduler may signal every
 * process. Only one counts, as in the agent. */
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

static bool ends_run(const struct ssh_root_options *options, int signal)
{
    char name[CT_SIGNAL_NAME_MAX];
    const char *rest = options->signals;
    size_t length;

    (void)ct_signal_format(name, signal);
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
    /* Hosts that only write ignore all signals but the second Ctrl-C. */
    root->gives_up_saving |= root->interrupts > 1 ||
                             (signal != SIGINT && count(root, SSH_HOST_READY) == 0);
    send_all(root, SSH_SIGNAL, 0, signal, "");
    expect_end(root, root->interrupts > 2    ? KILL_MS
                     : root->interrupts == 2 ? HURRY_MS
                                             : root->options->grace_ms + SLACK_MS);
}

static void on_signal(void *context, int signal, pid_t sender)
{
    struct root *root = context;
    char text[SIGNAL_SENDER_TEXT_MAX];

    if (signal == SIGCHLD) {
        ssh_subtree_reap(root->subtree);
        return;
    }
    if (is_copy(root, signal))
        return;
    if (ends_run(root->options, signal)) {
        root->interrupts += signal == SIGINT;
        signal_sender_describe(text, signal, sender, root->interrupts);
        root->interrupts -= signal == SIGINT;
        ssh_console_print(root->console, MESSAGES_NEWS, "%s", text);
        end_by_signal(root, signal);
        return;
    }
    signal_sender_describe_passed(text, signal, sender);
    ssh_console_print(root->console, MESSAGES_NEWS, "%s", text);
    if (root->state == ROOT_RUNNING)
        send_all(root, SSH_SIGNAL, 0, signal, "");
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
    const struct ssh_stage_options stage = {.loop = root->loop,
                                            .job = root->job,
                                            .plan = root->options->stage,
                                            .subtree = root->subtree,
                                            .context = root,
                                            .on_notice = on_stage_notice,
                                            .on_over = on_stage_over,
                                            .on_fail = on_stage_fail};

    root->stage = ssh_stage_open(&stage);
    return root->stage ? 0 : ct_fail(err, -ENOMEM, "--stage: out of memory");
}

static int open_all(struct root *root, struct ctrun_error *err)
{
    const struct ssh_console_options console = {
        .loop = root->loop, .job = root->job, .context = root, .on_full = on_full};
    const struct ssh_subtree_options subtree = {.loop = root->loop,
                                                .job = root->job,
                                                .here = root->options->here,
                                                .context = root,
                                                .on_message = on_message,
                                                .on_room = on_room,
                                                .on_over = on_over};

    if (!(root->deadline = loop_timer_open(root->loop, on_deadline, root)) ||
        ssh_console_open(&root->console, &console) < 0 ||
        ssh_subtree_create(&root->subtree, &subtree) < 0 || open_signals(root) < 0)
        return ct_fail(err, -ENOMEM, "--hosts: out of memory");
    return root->options->stage->scan ? open_stage(root, err) : 0;
}

/* Where no host has reported a round, the run was over before: then no host ends with an error. */
static bool has_succeeded(const struct root *root)
{
    return root->has_good_end && (root->has_started || root->code == 0);
}

/* A failed host does not change the exit code if the run has succeeded without it; one that was
 * over --budget, or lost a checkpoint, does. */
static int exit_code(const struct root *root)
{
    const bool has_no_code = root->code == 0 && root->signal == 0;
    const int status = has_succeeded(root) ? root->flaw
                       : has_no_code       ? CT_EXIT_RETRY
                                           : root->code;
    const struct exit_end how = {.signal = status ? 0 : root->signal, .status = status};

    return exit_status(&how, root->options->exit_style);
}

static int root_main(void *context)
{
    struct root root = {.options = context,
                        .job = ((const struct ssh_root_options *)context)->job};
    struct ctrun_error err;
    int code = CT_EXIT_FAILURE, rc;

    (void)signal(SIGPIPE, SIG_IGN); /* write() reports a closed connection */
    if ((rc = loop_create(&root.loop)) < 0) {
        (void)ct_fail(&err, rc, "--hosts: loop: %s", strerror(-rc));
        messages_error(&err);
        return code;
    }
    if (open_all(&root, &err) == 0) {
        ssh_subtree_start(root.subtree);
        loop_run(root.loop);
        code = exit_code(&root);
    } else {
        messages_error(&err);
    }
    signals_close(root.signals);
    ssh_stage_close(root.stage);
    ssh_subtree_destroy(root.subtree);
    ssh_console_close(root.console);
    loop_timer_close(root.deadline);
    (void)loop_destroy(root.loop);
    return code;
}

int ssh_root_run(const struct ssh_root_options *options, struct ctrun_error *err)
{
    union { /* guard_run() does not change it */
        const struct ssh_root_options *in;
        void *out;
    } context = {.in = options};

    for (int i = 1; i < NSIG; i++)
        if (ends_run(options, i))
            signal_sender_heed(i);
    return guard_run(root_main, context.out, err);
}
