/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/fleet_branch.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/fleet_spawn.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

enum {
    NOISE_MAX_BYTES = 64 * 1024, /* of a login shell, before the greeting */
    READ_BYTES = 64 * 1024,
    FROM_MAX_BYTES = 4 * READ_BYTES,
    TO_HIGH_BYTES = 1 << 20,
    TO_LOW_BYTES = 256 * 1024,
    TO_MAX_BYTES = FLEET_JOB_MAX_BYTES + 2 * TO_HIGH_BYTES,
    LINGER_MS = 5000, /* an ssh that has nothing more to say may take so long to end */
    WORDS_MAX = 24,
};

/* ---- Words ------------------------------------------------------------------------------- */

/* 'text' for any shell, with a quote in it as '\''. The caller frees. */
static char *quote(const char *text)
{
    char *quoted = ct_zalloc(4 * strlen(text) + 3);
    char *at = quoted;

    if (!quoted)
        return NULL;
    *at++ = '\'';
    for (; *text; text++) {
        if (*text == '\'') {
            memcpy(at, "'\\''", 4);
            at += 4;
        } else {
            *at++ = *text;
        }
    }
    *at = '\'';
    return quoted;
}

/* What the login shell over there gets; every shell knows exec and these quotes. */
static char *remote_command(const struct fleet_job *job)
{
    char *path = quote(job->program);
    const size_t size = (path ? strlen(path) : 0) + 32;
    char *command = path ? ct_zalloc(size) : NULL;

    if (command)
        (void)ct_format(command, size, "exec %s --relay", path);
    free(path);
    return command;
}

/* Kept for the sentence about a failure: the last line that is not blank. */
static void keep_last(struct fleet_branch *branch, const char *text, size_t length)
{
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        const size_t part = end ? (size_t)(end - text) : length;
        size_t used = part;

        while (used > 0 && strchr(" \r\t", text[used - 1]))
            used--;
        if (used > 0) {
            (void)ct_format(branch->last, sizeof branch->last, "%.*s", (int)used, text);
            ct_info("%s: %s", fleet_job_host(branch->options->job, branch->first),
                    branch->last);
        }
        text += part + (end != NULL);
        length -= part + (end != NULL);
    }
}

/* ---- Ends -------------------------------------------------------------------------------- */

static void give_up(struct fleet_branch *branch, int code, const char *why)
{
    if (!*branch->why) {
        (void)ct_copy(branch->why, sizeof branch->why, why);
        branch->code = code;
    }
    if (branch->pid > 0)
        (void)kill(-branch->pid, SIGKILL);
}

static void on_deadline(void *context)
{
    struct fleet_branch *branch = context;
    char why[FLEET_TEXT_MAX];

    if (branch->is_open || !branch->input)
        (void)ct_copy(why, sizeof why, "ssh did not end");
    else
        (void)ct_format(why, sizeof why, "no answer by ssh within %g s%s%.800s",
                        branch->options->job->reach_ms / 1000.0,
                        *branch->last ? ": " : "", branch->last);
    give_up(branch, CTRUN_E_UNREACHABLE, why);
}

static void check_room(struct fleet_branch *branch)
{
    const size_t length = branch->input ? ct_buf_length(&branch->to) : 0;

    if (length > TO_HIGH_BYTES) {
        branch->is_full = true;
    } else if (branch->is_full && length < TO_LOW_BYTES) {
        branch->is_full = false;
        branch->options->on_room(branch->options->context);
    }
}

/* The other side sees our end and ends everything it has. */
static void hang_up(struct fleet_branch *branch)
{
    loop_watch_close(branch->input);
    branch->input = NULL;
    loop_timer_set(branch->deadline, LINGER_MS);
}

/* ---- To the other side ------------------------------------------------------------------- */

static void flush(struct fleet_branch *branch)
{
    while (branch->input && ct_buf_length(&branch->to) > 0) {
        const ssize_t n = write(loop_watch_fd(branch->input), ct_buf_data(&branch->to),
                                ct_buf_length(&branch->to));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            loop_watch_for(branch->input, LOOP_WRITE);
            return;
        }
        if (n < 0) { /* its end says why */
            hang_up(branch);
            return;
        }
        ct_buf_consume(&branch->to, (size_t)n);
    }
    if (branch->input)
        loop_watch_for(branch->input, 0);
}

static void on_writable(void *context, unsigned events)
{
    (void)events;
    flush(context);
    check_room(context);
}

void fleet_branch_send(struct fleet_branch *branch, const struct fleet_message *message)
{
    if (!branch->input)
        return;
    if (fleet_message_encode(&branch->to, message) < 0)
        give_up(branch, CTRUN_E_UNREACHABLE, "it takes no bytes");
    else
        flush(branch);
    check_room(branch);
}

static int send_job(struct fleet_branch *branch)
{
    struct fleet_message piece = {.kind = FLEET_JOB};
    struct ct_buf job;
    int rc;

    ct_buf_init(&job, FLEET_JOB_MAX_BYTES);
    rc = fleet_job_encode(&job, branch->options->job, branch->first, branch->count);
    while (rc == 0 && !piece.code) {
        piece.data = ct_buf_data(&job);
        piece.length = ct_buf_length(&job);
        piece.code = piece.length <= FLEET_DATA_MAX_BYTES;
        if (!piece.code)
            piece.length = FLEET_DATA_MAX_BYTES;
        rc = fleet_message_encode(&branch->to, &piece);
        ct_buf_consume(&job, piece.length);
    }
    ct_buf_deinit(&job);
    return rc;
}

/* ---- From the other side ----------------------------------------------------------------- */

/* Drops what stands before the greeting, and the greeting. False: it is not there yet. */
static bool take_greeting(struct fleet_branch *branch)
{
    static const char greeting[] = FLEET_GREETING;
    const size_t length = sizeof greeting - 1;
    const char *data = (const char *)ct_buf_data(&branch->from);
    const char *at = memmem(data, ct_buf_length(&branch->from), greeting, length);

    if (!at) {
        if (ct_buf_length(&branch->from) > NOISE_MAX_BYTES)
            give_up(branch, CTRUN_E_PROTOCOL,
                    "it printed 64 KiB and no word of ctrun's: see its login scripts");
        return false;
    }
    ct_buf_consume(&branch->from, (size_t)(at - data) + length);
    branch->is_greeted = true;
    return true;
}

static void take_message(struct fleet_branch *branch,
                         const struct fleet_message *message)
{
    if (message->host < branch->first ||
        message->host - branch->first >= branch->count || message->kind < FLEET_READY) {
        give_up(branch, CTRUN_E_PROTOCOL, "it says what is not its business");
        return;
    }
    if (message->host == branch->first && message->kind == FLEET_READY) {
        branch->is_open = true;
        loop_timer_stop(branch->deadline);
    }
    branch->options->on_message(branch->options->context, message);
}

static void take_bytes(struct fleet_branch *branch)
{
    struct fleet_message message;
    struct ct_frame frame;

    if (!branch->is_greeted && !take_greeting(branch))
        return;
    while (!*branch->why) {
        const int taken = ct_frame_decode(ct_buf_data(&branch->from),
                                          ct_buf_length(&branch->from), &frame);

        if (taken == 0)
            return;
        if (taken < 0 || fleet_message_decode(&frame, &message) < 0) {
            give_up(branch, CTRUN_E_PROTOCOL, "what it says is no message of ctrun's");
            return;
        }
        take_message(branch, &message);
        ct_buf_consume(&branch->from, (size_t)taken);
    }
}

/* Reads once; 0 at the end, -EAGAIN, else > 0. */
static ssize_t read_out(struct fleet_branch *branch)
{
    uint8_t *at;
    ssize_t n;

    if (ct_buf_reserve(&branch->from, READ_BYTES, &at) < 0) {
        give_up(branch, CTRUN_E_PROTOCOL, "out of memory");
        return 0;
    }
    n = read(loop_watch_fd(branch->out), at, READ_BYTES);
    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    ct_buf_commit(&branch->from, (size_t)n);
    if (n > 0)
        take_bytes(branch);
    return n;
}

static void on_out(void *context, unsigned events)
{
    struct fleet_branch *branch = context;

    (void)events;
    if (read_out(branch) == 0) {
        loop_watch_for(branch->out, 0);
        loop_timer_set(branch->deadline, LINGER_MS);
    }
}

static ssize_t read_err(struct fleet_branch *branch)
{
    char text[4096];
    const ssize_t n = read(loop_watch_fd(branch->err), text, sizeof text);

    if (n > 0)
        keep_last(branch, text, (size_t)n);
    return n;
}

static void on_err(void *context, unsigned events)
{
    struct fleet_branch *branch = context;

    (void)events;
    if (read_err(branch) == 0)
        loop_watch_for(branch->err, 0);
}

void fleet_branch_pause(struct fleet_branch *branch, bool is_paused)
{
    branch->is_paused = is_paused;
    loop_watch_for(branch->out, is_paused ? 0 : LOOP_READ);
}

/* ---- The end ----------------------------------------------------------------------------- */

/* One line for people: ssh's own words are the best there are. */
static void explain(struct fleet_branch *branch, int status)
{
    const char *last = *branch->last ? branch->last : "it said nothing";

    if (*branch->why)
        return;
    branch->code = CTRUN_E_UNREACHABLE;
    if (!branch->is_greeted && WIFEXITED(status) &&
        (WEXITSTATUS(status) == CT_EXIT_NOT_FOUND ||
         WEXITSTATUS(status) == CT_EXIT_CANNOT_EXEC)) {
        branch->code = CTRUN_E_EXEC;
        (void)ct_format(branch->why, sizeof branch->why,
                        "no ctrun can be started there: %.900s", last);
    } else if (WIFSIGNALED(status)) {
        (void)ct_format(branch->why, sizeof branch->why,
                        "ssh died of signal %d: %.900s", WTERMSIG(status), last);
    } else {
        (void)ct_format(branch->why, sizeof branch->why, "ssh ended with %d: %.900s",
                        WEXITSTATUS(status), last);
    }
}

void fleet_branch_reap(struct fleet_branch *branch)
{
    int status;

    if (branch->pid <= 0 || waitpid(branch->pid, &status, WNOHANG) != branch->pid)
        return;
    branch->pid = 0;
    /* A master connection that ssh left behind may hold the pipes open: read what is there. */
    while (read_err(branch) > 0)
        ;
    while (!*branch->why && read_out(branch) > 0)
        ;
    explain(branch, status);
    branch->options->on_over(branch->options->context, branch, branch->code,
                             branch->why);
}

void fleet_branch_close(struct fleet_branch *branch)
{
    if (branch->pid > 0)
        (void)kill(-branch->pid, SIGKILL);
    loop_watch_close(branch->input);
    loop_watch_close(branch->out);
    loop_watch_close(branch->err);
    loop_timer_close(branch->deadline);
    ct_buf_deinit(&branch->to);
    ct_buf_deinit(&branch->from);
    stage_set_deinit(&branch->needs);
    ct_list_remove(&branch->node);
    free(branch);
}

/* ---- The beginning ----------------------------------------------------------------------- */

struct call {
    const char *words[WORDS_MAX];
    char *command;
    char *script;
    char limit[40];
};

/* A command of the user's is read by sh, as git does with its own: options and quotes work. */
static int call_init(struct call *call, const struct fleet_job *job, const char *host)
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

static pid_t start_ssh(const struct fleet_job *job, uint32_t first,
                       struct fleet_spawn *spawn, struct ctrun_error *err)
{
    struct call call;
    union { /* as execv() has it: nobody writes to them */
        const char **in;
        char *const *out;
    } words = {.in = call.words};
    pid_t pid = call_init(&call, job, job->names[first - job->first]);

    if (pid == 0) {
        *spawn = (struct fleet_spawn){.path = call.words[0],
                                      .argv = words.out,
                                      .env = environ,
                                      .has_input = true};
        pid = fleet_spawn(spawn, err);
    }
    free(call.command);
    free(call.script);
    return pid;
}

struct fleet_branch *fleet_branch_open(const struct fleet_branch_options *options,
                                       uint32_t first, uint32_t count,
                                       struct ctrun_error *err)
{
    struct fleet_branch *branch = ct_zalloc(sizeof *branch);
    struct fleet_spawn spawn;

    if (!branch)
        return NULL;
    *branch = (struct fleet_branch){.first = first, .count = count, .options = options};
    ct_list_init(&branch->node);
    ct_buf_init(&branch->to, TO_MAX_BYTES);
    ct_buf_init(&branch->from, FROM_MAX_BYTES);
    if ((branch->pid = start_ssh(options->job, first, &spawn, err)) < 0) {
        fleet_branch_close(branch);
        return NULL;
    }
    branch->input = loop_watch_open(options->loop, spawn.input, on_writable, branch);
    branch->out = loop_watch_open(options->loop, spawn.out, on_out, branch);
    branch->err = loop_watch_open(options->loop, spawn.err, on_err, branch);
    branch->deadline = loop_timer_open(options->loop, on_deadline, branch);
    if (!branch->input || !branch->out || !branch->err || !branch->deadline ||
        send_job(branch) < 0) {
        (void)ct_fail(err, -ENOMEM, "out of memory");
        fleet_branch_close(branch);
        return NULL;
    }
    loop_watch_for(branch->out, LOOP_READ);
    loop_watch_for(branch->err, LOOP_READ);
    loop_timer_set(branch->deadline, options->job->reach_ms);
    flush(branch);
    return branch;
}
