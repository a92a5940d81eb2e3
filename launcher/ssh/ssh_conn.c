/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_conn.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/options/shell_words.h"
#include "launcher/ssh/ssh_spawn.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    NOISE_MAX_BYTES = 64 * 1024, /* output of a login shell before the greeting */
    READ_BYTES = 64 * 1024,
    FROM_MAX_BYTES = 4 * READ_BYTES,
    TO_HIGH_BYTES = 1 << 20,
    TO_LOW_BYTES = 256 * 1024,
    TO_MAX_BYTES = SSH_JOB_MAX_BYTES + 2 * TO_HIGH_BYTES,
    LINGER_MS = 5000, /* limit for ssh to end after its input was closed */
    WORDS_MAX = 24,
};

/* The reader sees it behind the host's name, and that host is not the one without memory. */
#define OUT_OF_MEMORY "the ctrun that calls it is out of memory"

/* ---- Words ------------------------------------------------------------------------------- */

/* The command for the remote login shell; every shell knows exec and these quotes. */
static char *remote_command(const struct ssh_job *job)
{
    char *path = shell_words_quote(job->program);
    const size_t size = (path ? strlen(path) : 0) + 32;
    char *command = path ? ct_zalloc(size) : NULL;

    if (command)
        (void)ct_format(command, size, "exec %s --relay", path);
    free(path);
    return command;
}

/* Keeps the last line for an error message. Ignores blank lines and lines that begin with a
 * blank, which continue another line. */
static void keep_last(struct ssh_conn *conn, const char *text, size_t length)
{
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        const size_t part = end ? (size_t)(end - text) : length;
        size_t used = part;

        while (used > 0 && strchr(" \r\t", text[used - 1]))
            used--;
        if (used > 0)
            ct_info("%s: %.*s", ssh_job_host(conn->options->job, conn->first),
                    (int)used, text);
        if (used > 0 && (*text != ' ' || !*conn->last))
            (void)ct_format(conn->last, sizeof conn->last, "%.*s", (int)used, text);
        text += part + (end != NULL);
        length -= part + (end != NULL);
    }
}

/* ---- Ends -------------------------------------------------------------------------------- */

/* Kills ssh and keeps the first reason. Frees nothing and does not call on_over(): ssh_conn_reap()
 * calls it, once, when it has reaped the killed ssh. */
static void give_up(struct ssh_conn *conn, int code, const char *why)
{
    if (!*conn->why) {
        (void)ct_copy(conn->why, sizeof conn->why, why);
        conn->code = code;
    }
    if (conn->pid > 0)
        (void)kill(-conn->pid, SIGKILL);
}

static void on_deadline(void *context)
{
    struct ssh_conn *conn = context;
    char why[SSH_TEXT_MAX];

    if (conn->is_open || conn->has_ended_output || !conn->input)
        (void)ct_format(why, sizeof why,
                        "ssh did not end within %d s after its input "
                        "or output was closed",
                        LINGER_MS / 1000);
    else
        (void)ct_format(why, sizeof why, "no answer over ssh within %g s%s%.800s",
                        conn->options->job->reach_ms / 1000.0, *conn->last ? ": " : "",
                        conn->last);
    give_up(conn, CTRUN_E_UNREACHABLE, why);
}

static void check_room(struct ssh_conn *conn)
{
    const size_t length = conn->input ? ct_buf_length(&conn->to) : 0;

    if (length > TO_HIGH_BYTES) {
        conn->is_full = true;
    } else if (conn->is_full && length < TO_LOW_BYTES) {
        conn->is_full = false;
        conn->options->on_room(conn->options->context);
    }
}

/* Closes ssh's input. The relay on the other side sees end-of-file and kills everything there. */
static void hang_up(struct ssh_conn *conn)
{
    loop_watch_close(conn->input);
    conn->input = NULL;
    loop_timer_set(conn->deadline, LINGER_MS);
}

/* ---- To the other side ------------------------------------------------------------------- */

static void flush(struct ssh_conn *conn)
{
    if (conn->input && loop_watch_write(conn->input, &conn->to) < 0)
        hang_up(conn); /* ssh's exit tells why */
}

static void on_writable(void *context, unsigned events)
{
    (void)events;
    flush(context);
    check_room(context);
}

/* `rc` is ssh_message_encode()'s. */
static void fail_to_send(struct ssh_conn *conn, int rc)
{
    char why[128];

    if (rc == -ENOMEM) {
        give_up(conn, rc, OUT_OF_MEMORY);
        return;
    }
    (void)ct_format(why, sizeof why, "it has not read %zu MiB that were sent to it",
                    ct_buf_length(&conn->to) >> 20);
    give_up(conn, CTRUN_E_UNREACHABLE, why);
}

void ssh_conn_send(struct ssh_conn *conn, const struct ssh_message *message)
{
    int rc;

    if (!conn->input)
        return;
    if ((rc = ssh_message_encode(&conn->to, message)) < 0)
        fail_to_send(conn, rc);
    else
        flush(conn);
    check_room(conn);
}

static int send_job(struct ssh_conn *conn)
{
    struct ssh_message piece = {.kind = SSH_JOB};
    struct ct_buf job;
    int rc;

    ct_buf_init(&job, SSH_JOB_MAX_BYTES);
    rc = ssh_job_encode(&job, conn->options->job, conn->first, conn->count);
    while (rc == 0 && !piece.code) {
        piece.data = ct_buf_data(&job);
        piece.length = ct_buf_length(&job);
        piece.code = piece.length <= SSH_DATA_MAX_BYTES;
        if (!piece.code)
            piece.length = SSH_DATA_MAX_BYTES;
        rc = ssh_message_encode(&conn->to, &piece);
        ct_buf_consume(&job, piece.length);
    }
    ct_buf_deinit(&job);
    return rc;
}

/* ---- From the other side ----------------------------------------------------------------- */

/* Drops the greeting and all output before it. False: the greeting has not arrived yet. */
static bool on_greeting(struct ssh_conn *conn)
{
    static const char greeting[] = SSH_GREETING;
    const size_t length = sizeof greeting - 1;
    const char *data = (const char *)ct_buf_data(&conn->from);
    const char *at = memmem(data, ct_buf_length(&conn->from), greeting, length);

    if (!at) {
        if (ct_buf_length(&conn->from) > NOISE_MAX_BYTES)
            give_up(conn, CTRUN_E_PROTOCOL,
                    "it printed 64 KiB before ctrun answered: check its login scripts");
        return false;
    }
    ct_buf_consume(&conn->from, (size_t)(at - data) + length);
    conn->is_greeted = true;
    return true;
}

static void on_message(struct ssh_conn *conn, const struct ssh_message *message)
{
    if (message->host < conn->first || message->host - conn->first >= conn->count ||
        message->kind < SSH_READY) {
        give_up(conn, CTRUN_E_PROTOCOL,
                "protocol error: a message for a host outside its subtree");
        return;
    }
    if (message->host == conn->first && message->kind == SSH_READY) {
        conn->is_open = true;
        loop_timer_stop(conn->deadline);
    }
    conn->options->on_message(conn->options->context, message);
}

static void on_bytes(struct ssh_conn *conn)
{
    struct ssh_message message;
    struct ct_frame frame;

    if (!conn->is_greeted && !on_greeting(conn))
        return;
    while (!*conn->why) {
        const int taken = ct_frame_decode(ct_buf_data(&conn->from),
                                          ct_buf_length(&conn->from), &frame);

        if (taken == 0)
            return;
        if (taken < 0 || ssh_message_decode(&frame, &message) < 0) {
            give_up(conn, CTRUN_E_PROTOCOL, "protocol error: a malformed message");
            return;
        }
        on_message(conn, &message);
        ct_buf_consume(&conn->from, (size_t)taken);
    }
}

/* Reads once: > 0, 0 at end-of-file, or -EAGAIN. */
static ssize_t read_out(struct ssh_conn *conn)
{
    uint8_t *at;
    ssize_t n;

    if (ct_buf_reserve(&conn->from, READ_BYTES, &at) < 0) {
        give_up(conn, -ENOMEM, OUT_OF_MEMORY);
        return 0;
    }
    n = read(loop_watch_fd(conn->out), at, READ_BYTES);
    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    ct_buf_commit(&conn->from, (size_t)n);
    if (n > 0)
        on_bytes(conn);
    return n;
}

static void on_out(void *context, unsigned events)
{
    struct ssh_conn *conn = context;

    (void)events;
    if (read_out(conn) == 0) {
        conn->has_ended_output = true;
        loop_watch_for(conn->out, 0);
        loop_timer_set(conn->deadline, LINGER_MS);
    }
}

static ssize_t read_err(struct ssh_conn *conn)
{
    char text[4096];
    const ssize_t n = read(loop_watch_fd(conn->err), text, sizeof text);

    if (n > 0)
        keep_last(conn, text, (size_t)n);
    return n;
}

static void on_err(void *context, unsigned events)
{
    struct ssh_conn *conn = context;

    (void)events;
    if (read_err(conn) == 0)
        loop_watch_for(conn->err, 0);
}

void ssh_conn_pause(struct ssh_conn *conn, bool is_paused)
{
    conn->is_paused = is_paused;
    loop_watch_for(conn->out, is_paused ? 0 : LOOP_READ);
}

/* ---- The end ----------------------------------------------------------------------------- */

/* Sets `why` to one line for people, with ssh's own last line, the best explanation there is. */
static void explain(struct ssh_conn *conn, int status)
{
    const char *last = *conn->last ? conn->last : "it printed nothing";

    if (*conn->why)
        return;
    conn->code = CTRUN_E_UNREACHABLE;
    if (!conn->is_greeted && WIFEXITED(status) &&
        (WEXITSTATUS(status) == CT_EXIT_NOT_FOUND ||
         WEXITSTATUS(status) == CT_EXIT_CANNOT_EXEC)) {
        conn->code = CTRUN_E_EXEC;
        (void)ct_format(conn->why, sizeof conn->why,
                        "no ctrun can be started there: %.900s", last);
    } else if (WIFSIGNALED(status)) {
        (void)ct_format(conn->why, sizeof conn->why, "ssh died of signal %d: %.900s",
                        WTERMSIG(status), last);
    } else {
        (void)ct_format(conn->why, sizeof conn->why, "ssh ended with %d: %.900s",
                        WEXITSTATUS(status), last);
    }
}

void ssh_conn_reap(struct ssh_conn *conn)
{
    int status;

    if (conn->pid <= 0 || waitpid(conn->pid, &status, WNOHANG) != conn->pid)
        return;
    conn->pid = 0;
    /* A master connection that ssh left behind may keep the pipes open, so there may be no
     * end-of-file: read only what has arrived. */
    while (read_err(conn) > 0)
        ;
    while (!*conn->why && read_out(conn) > 0)
        ;
    explain(conn, status);
    conn->options->on_over(conn->options->context, conn, conn->code, conn->why);
}

void ssh_conn_close(struct ssh_conn *conn)
{
    if (conn->pid > 0)
        (void)kill(-conn->pid, SIGKILL);
    loop_watch_close(conn->input);
    loop_watch_close(conn->out);
    loop_watch_close(conn->err);
    loop_timer_close(conn->deadline);
    ct_buf_deinit(&conn->to);
    ct_buf_deinit(&conn->from);
    stage_set_deinit(&conn->needs);
    ct_list_remove(&conn->node);
    free(conn);
}

/* ---- The beginning ----------------------------------------------------------------------- */

struct call {
    const char *words[WORDS_MAX];
    char *command;
    char *script;
    char limit[40];
};

/* The user's own ssh command is run by sh, as git runs GIT_SSH_COMMAND: options and quotes work. */
static int call_init(struct call *call, const struct ssh_job *job, const char *host)
{
    const size_t size = strlen(job->ssh) + 16;
    size_t n = 0;

    *call = (struct call){.command = remote_command(job), .script = ct_zalloc(size)};
    if (!call->command || !call->script)
        return -ENOMEM;
    (void)ct_format(call->script, size, "exec %s \"$@\"", job->ssh);
    (void)ct_format(call->limit, sizeof call->limit, "ConnectTimeout=%u",
                    job->reach_ms / 1000 + 1);
    if (*job->ssh) {
        const char *const by_user[] = {"sh", "-c", call->script, "ctrun-ssh"};

        memcpy(call->words, by_user, sizeof by_user);
        n = sizeof by_user / sizeof *by_user;
    } else {
        const char *const by_us[] = {"ssh",
                                     "-T",
                                     "-x",
                                     "-o",
                                     "BatchMode=yes",
                                     "-o",
                                     call->limit,
                                     "-o",
                                     "ServerAliveInterval=15",
                                     "-o",
                                     "ServerAliveCountMax=4",
                                     "--"};

        memcpy(call->words, by_us, sizeof by_us);
        n = sizeof by_us / sizeof *by_us;
    }
    call->words[n] = host;
    call->words[n + 1] = call->command;
    return 0;
}

static pid_t start_ssh(const struct ssh_job *job, uint32_t first,
                       struct ssh_spawn *spawn, struct ctrun_error *err)
{
    struct call call;
    union { /* execv()'s type; the words are not written */
        const char **in;
        char *const *out;
    } words = {.in = call.words};
    pid_t pid = call_init(&call, job, job->names[first - job->first]);

    if (pid == 0) {
        *spawn = (struct ssh_spawn){.path = call.words[0],
                                    .argv = words.out,
                                    .env = environ,
                                    .has_input = true};
        pid = ssh_spawn(spawn, err);
    }
    free(call.command);
    free(call.script);
    return pid;
}

struct ssh_conn *ssh_conn_open(const struct ssh_conn_options *options, uint32_t first,
                               uint32_t count, struct ctrun_error *err)
{
    struct ssh_conn *conn = ct_zalloc(sizeof *conn);
    struct ssh_spawn spawn;

    if (!conn)
        return NULL;
    *conn = (struct ssh_conn){.first = first, .count = count, .options = options};
    ct_list_init(&conn->node);
    ct_buf_init(&conn->to, TO_MAX_BYTES);
    ct_buf_init(&conn->from, FROM_MAX_BYTES);
    if ((conn->pid = start_ssh(options->job, first, &spawn, err)) < 0) {
        ssh_conn_close(conn);
        return NULL;
    }
    conn->input = loop_watch_open(options->loop, spawn.input, on_writable, conn);
    conn->out = loop_watch_open(options->loop, spawn.out, on_out, conn);
    conn->err = loop_watch_open(options->loop, spawn.err, on_err, conn);
    conn->deadline = loop_timer_open(options->loop, on_deadline, conn);
    if (!conn->input || !conn->out || !conn->err || !conn->deadline ||
        send_job(conn) < 0) {
        (void)ct_fail(err, -ENOMEM, OUT_OF_MEMORY);
        ssh_conn_close(conn);
        return NULL;
    }
    loop_watch_for(conn->out, LOOP_READ);
    loop_watch_for(conn->err, LOOP_READ);
    loop_timer_set(conn->deadline, options->job->reach_ms);
    flush(conn);
    return conn;
}
