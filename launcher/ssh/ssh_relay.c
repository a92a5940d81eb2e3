/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/guard/guard.h"
#include "agent/loop/signals.h"
#include "launcher/report/messages.h"
#include "launcher/ssh/ssh_subtree.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    READ_BYTES = 64 * 1024,
    UP_HIGH_BYTES = 1 << 20, /* above this the run's output is paused */
    UP_LOW_BYTES = 256 * 1024,
    UP_MAX_BYTES = 64 << 20, /* room for one turn of many connections, too */
};

struct relay {
    struct loop *loop;
    struct signals *signals;
    struct loop_watch *down; /* standard input */
    struct loop_watch *up;   /* standard output */
    struct ct_buf from;
    struct ct_buf to;
    struct ct_buf pieces; /* received pieces of the job */
    struct ssh_job job;
    struct ssh_subtree *subtree;
    bool is_over;
    int code;
};

static void leave(struct relay *relay, int code)
{
    relay->code = code;
    loop_stop(relay->loop);
}

/* ---- Up ---------------------------------------------------------------------------------- */

static void flush(struct relay *relay)
{
    if (loop_watch_write(relay->up, &relay->to) < 0) { /* the process above is gone */
        leave(relay, CT_EXIT_FAILURE);
        return;
    }
    /* There are two limits, so that streams are not paused and resumed with each message. */
    if (relay->subtree && ct_buf_length(&relay->to) < UP_LOW_BYTES)
        ssh_subtree_pause(relay->subtree, false);
    if (relay->is_over && ct_buf_length(&relay->to) == 0)
        leave(relay, CT_EXIT_OK);
}

static void on_writable(void *context, unsigned events)
{
    (void)events;
    flush(context);
}

static void on_report(void *context, const struct ssh_message *message)
{
    struct relay *relay = context;

    if (ssh_message_encode(&relay->to, message) < 0) {
        leave(relay, CT_EXIT_FAILURE);
        return;
    }
    if (relay->subtree && ct_buf_length(&relay->to) > UP_HIGH_BYTES)
        ssh_subtree_pause(relay->subtree, true);
    flush(relay);
}

static void on_over(void *context)
{
    struct relay *relay = context;

    relay->is_over = true;
    flush(relay);
}

/* The connections to the hosts below have room again. */
static void on_room(void *context)
{
    const struct relay *relay = context;

    loop_watch_for(relay->down, LOOP_READ);
}

/* ---- Down -------------------------------------------------------------------------------- */

/* Reports that this host cannot take part; the process above then calls the rest of its subtree. */
static void refuse(struct relay *relay, int code, const char *why)
{
    const struct ssh_message message = ssh_message_of_text(SSH_FAILED, relay->job.first,
                                                           code, why);

    relay->is_over = true;
    on_report(relay, &message);
}

static void begin(struct relay *relay)
{
    struct ssh_subtree_options options = {.loop = relay->loop,
                                          .job = &relay->job,
                                          .context = relay,
                                          .on_message = on_report,
                                          .on_room = on_room,
                                          .on_over = on_over};
    char why[1024];

    if (ssh_job_decode(&relay->job, ct_buf_data(&relay->pieces),
                       ct_buf_length(&relay->pieces)) < 0) {
        leave(relay, CT_EXIT_FAILURE);
        return;
    }
    ct_buf_deinit(&relay->pieces);
    if (chdir(relay->job.cwd) < 0) {
        (void)ct_format(
            why, sizeof why,
            "cannot change to %.900s, the folder where ctrun was started: %s",
            relay->job.cwd, strerror(errno));
        refuse(relay, CTRUN_E_BAD_ENVIRONMENT, why);
        return;
    }
    for (char *const *entry = relay->job.env; *entry; entry++)
        if (ct_starts_with(*entry, CT_ENV_EVENTS "="))
            (void)ct_event_open(*entry + strlen(CT_ENV_EVENTS "="));
    options.here = relay->job.first;
    if (ssh_subtree_create(&relay->subtree, &options) < 0)
        leave(relay, CT_EXIT_FAILURE);
    else
        ssh_subtree_start(relay->subtree);
}

static int on_message(struct relay *relay, const struct ssh_message *message)
{
    if (message->kind == SSH_JOB) {
        if (relay->subtree || relay->is_over)
            return -EPROTO;
        if (ct_buf_append(&relay->pieces, message->data, message->length) < 0)
            return -ENOMEM;
        if (message->code)
            begin(relay);
        return 0;
    }
    /* These kinds are only sent upwards. */
    if (message->kind >= SSH_READY)
        return -EPROTO;
    if (relay->subtree)
        ssh_subtree_send(relay->subtree, message);
    return 0;
}

static int handle_frames(struct relay *relay)
{
    struct ssh_message message;
    struct ct_frame frame;
    int taken;

    while ((taken = ct_frame_decode(ct_buf_data(&relay->from),
                                    ct_buf_length(&relay->from), &frame)) > 0) {
        int rc = ssh_message_decode(&frame, &message);

        if (rc == 0)
            rc = on_message(relay, &message);
        if (rc < 0)
            return rc;
        ct_buf_consume(&relay->from, (size_t)taken);
    }
    return taken;
}

static void on_down(void *context, unsigned events)
{
    struct relay *relay = context;
    uint8_t *at;
    ssize_t n;

    (void)events;
    if (ct_buf_reserve(&relay->from, READ_BYTES, &at) < 0) {
        leave(relay, CT_EXIT_FAILURE);
        return;
    }
    n = read(loop_watch_fd(relay->down), at, READ_BYTES);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* the process above is gone: end */
        leave(relay, CT_EXIT_SIGNAL + SIGHUP);
        return;
    }
    ct_buf_commit(&relay->from, (size_t)n);
    if (handle_frames(relay) < 0)
        leave(relay, CT_EXIT_FAILURE);
    else if (relay->subtree && ssh_subtree_is_full(relay->subtree))
        loop_watch_for(relay->down, 0);
}

/* ---- Life -------------------------------------------------------------------------------- */

/* Passes a signal on to this host and the hosts below only: the rest of the run does not get it. */
static void on_signal(void *context, int signal, pid_t sender)
{
    struct relay *relay = context;
    const struct ssh_message message = {.kind = SSH_SIGNAL, .code = signal};

    (void)sender;
    if (signal != SIGCHLD && relay->subtree)
        ssh_subtree_send(relay->subtree, &message);
    else if (signal == SIGCHLD && relay->subtree)
        ssh_subtree_reap(relay->subtree);
    else if (signal != SIGCHLD)
        leave(relay, CT_EXIT_SIGNAL + signal);
}

static int open_all(struct relay *relay)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    static const char greeting[] = SSH_GREETING;

    ct_buf_init(&relay->from, 4 * READ_BYTES);
    ct_buf_init(&relay->to, UP_MAX_BYTES);
    ct_buf_init(&relay->pieces, SSH_JOB_MAX_BYTES);
    relay->down = loop_watch_open(relay->loop, fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 4),
                                  on_down, relay);
    relay->up = loop_watch_open(relay->loop, fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 4),
                                on_writable, relay);
    if (!relay->down || !relay->up ||
        signals_open(&relay->signals, relay->loop, signals,
                     sizeof signals / sizeof *signals, on_signal, relay) < 0 ||
        ct_buf_append(&relay->to, greeting, sizeof greeting - 1) < 0)
        return -ENOMEM;
    loop_watch_for(relay->down, LOOP_READ);
    flush(relay);
    return 0;
}

static void close_all(struct relay *relay)
{
    ssh_subtree_destroy(relay->subtree);
    signals_close(relay->signals);
    loop_watch_close(relay->down);
    loop_watch_close(relay->up);
    ct_buf_deinit(&relay->from);
    ct_buf_deinit(&relay->to);
    ct_buf_deinit(&relay->pieces);
    ssh_job_deinit(&relay->job);
}

static int relay_main(void *context)
{
    struct relay *relay = ct_zalloc(sizeof *relay);
    int code = CT_EXIT_FAILURE;

    (void)context;
    (void)signal(SIGPIPE,
                 SIG_IGN); /* a closed connection is reported by write() itself */
    if (!relay || loop_create(&relay->loop) < 0) {
        messages_error(&(struct ctrun_error){
            -ENOMEM, "--hosts: out of memory or of file descriptors on this host"});
        free(relay);
        return code;
    }
    if (open_all(relay) == 0) {
        loop_run(relay->loop);
        code = relay->code;
    }
    close_all(relay);
    (void)loop_destroy(relay->loop);
    free(relay);
    return code;
}

int ssh_relay_run(void)
{
    struct ctrun_error err;
    int code;

    (void)prctl(PR_SET_DUMPABLE, 0); /* this process holds the token */
    code = guard_run(relay_main, NULL, &err);
    if (code < 0)
        messages_error(&err);
    return code < 0 ? CT_EXIT_FAILURE : code;
}
