/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_node.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/output/lines.h"
#include "launcher/config/host_slot.h"
#include "launcher/ssh/ssh_spawn.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/contract.h"

enum {
    READ_BYTES = 32 * 1024, /* a longer line is sent in pieces */
    STREAMS = 2,
};

struct stream {
    struct ssh_node *node;
    struct loop_watch *watch;
    struct ct_buf rest; /* an incomplete line */
    int number;         /* 1: stdout, 2: stderr */
};

/* The node's ctrun on this host. Its two streams and its channel are turned into messages.
 * ssh_node_close() frees it and kills what still runs; ssh_node_reap() reports the exit code. */
struct ssh_node {
    struct ssh_node_options options;
    pid_t pid;
    struct stream streams[STREAMS];
    struct loop_watch *channel;
    size_t verdict_bytes; /* of SSH_ENDED */
};

static void send_up(struct ssh_node *node, enum ssh_kind kind, int code,
                    const void *data, size_t length)
{
    const struct ssh_message message = {.kind = kind,
                                        .host = node->options.place,
                                        .code = code,
                                        .data = data,
                                        .length = length};

    node->options.on_message(node->options.context, &message);
}

/* ---- What it writes ---------------------------------------------------------------------- */

static void send_lines(struct stream *stream, bool is_all)
{
    const char *data;
    size_t length;
    size_t part;

    do {
        data = (const char *)ct_buf_data(&stream->rest);
        length = ct_buf_length(&stream->rest);
        part = lines_whole(data, length, READ_BYTES);
        if (part == 0 && length > 0 && (is_all || length >= READ_BYTES))
            part = length > READ_BYTES ? READ_BYTES : length;
        if (part > 0)
            send_up(stream->node, SSH_OUTPUT, stream->number, data, part);
        ct_buf_consume(&stream->rest, part);
    } while (part > 0);
}

/* Reads once; <= 0: nothing to read now. */
static ssize_t read_stream(struct stream *stream)
{
    uint8_t *at;
    ssize_t n;

    if (ct_buf_reserve(&stream->rest, READ_BYTES, &at) < 0)
        return 0;
    n = read(loop_watch_fd(stream->watch), at, READ_BYTES);
    if (n <= 0)
        return n;
    ct_buf_commit(&stream->rest, (size_t)n);
    send_lines(stream, false);
    return n;
}

static void on_stream(void *context, unsigned events)
{
    struct stream *stream = context;

    (void)events;
    /* At end-of-file only stop watching: ssh_node_close() closes the descriptor. */
    if (read_stream(stream) == 0)
        loop_watch_for(stream->watch, 0);
}

static int read_seconds(const char *digits, size_t length)
{
    char text[24];
    uint64_t seconds;

    (void)ct_format(text, sizeof text, "%.*s", (int)length, digits);
    return ct_parse_u64(text, 0, INT32_MAX, &seconds) < 0 ? 0 : (int)seconds;
}

/* Sends the workers' output first: they wrote it before the launcher's message about them. */
static ssize_t read_channel(struct ssh_node *node)
{
    char text[SSH_DATA_MAX_BYTES];
    const ssize_t n = recv(loop_watch_fd(node->channel), text, sizeof text, 0);

    if (n <= 0)
        return n;
    for (int i = 0; i < STREAMS; i++)
        while (read_stream(&node->streams[i]) > 0)
            ;
    if (*text == HOST_SLOT_STARTED)
        send_up(node, SSH_STARTED, 0, NULL, 0);
    else if (*text == HOST_SLOT_SAVING)
        send_up(node, SSH_SAVING, read_seconds(text + 1, (size_t)n - 1), NULL, 0);
    else if (*text == HOST_SLOT_VERDICT || *text == HOST_SLOT_FLAW)
        node->verdict_bytes = *text == HOST_SLOT_FLAW ? 2 : 1;
    else if (*text == HOST_SLOT_WORDS && n > HOST_SLOT_WORDS_HEAD_BYTES)
        send_up(node, SSH_WORDS, text[1], text + HOST_SLOT_WORDS_HEAD_BYTES,
                (size_t)n - HOST_SLOT_WORDS_HEAD_BYTES);
    return n;
}

static void on_channel(void *context, unsigned events)
{
    struct ssh_node *node = context;

    (void)events;
    if (read_channel(node) == 0)
        loop_watch_for(node->channel, 0);
}

void ssh_node_pause(struct ssh_node *node, bool is_paused)
{
    if (!node)
        return;
    for (int i = 0; i < STREAMS; i++)
        loop_watch_for(node->streams[i].watch, is_paused ? 0 : LOOP_READ);
    loop_watch_for(node->channel, is_paused ? 0 : LOOP_READ);
}

/* ---- Its life ---------------------------------------------------------------------------- */

static int fill_env(struct ct_env *env, const struct ssh_job *job, uint32_t place,
                    const char *endpoint)
{
    int rc = ct_env_init(env, environ);

    for (char *const *entry = job->env; rc == 0 && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        char *name = equals ? ct_strndup(*entry, (size_t)(equals - *entry)) : NULL;

        if (equals)
            rc = name ? ct_env_set(env, name, equals + 1) : -ENOMEM;
        free(name);
    }
    /* Removes SLURM_STEP*: this host's place in a batch job is not its place in this run. */
    for (size_t i = 0; rc == 0 && i < env->count;)
        if (ct_starts_with(env->list[i], "SLURM_STEP")) {
            char name[128];

            (void)ct_format(name, sizeof name, "%.*s", (int)strcspn(env->list[i], "="),
                            env->list[i]);
            ct_env_remove(env, name);
        } else {
            i++;
        }
    if (rc == 0 && *job->token)
        rc = ct_env_set(env, CT_ENV_TOKEN, job->token);
    return rc < 0 ? rc
                  : ct_env_setf(env, HOST_SLOT_ENV, "%u/%u/%s/%s", place, job->total,
                                endpoint, job->run_id);
}

static int watch(struct ssh_node *node, const struct ssh_spawn *spawn)
{
    const int fds[STREAMS] = {spawn->out, spawn->err};
    bool is_whole = true;

    for (int i = 0; i < STREAMS; i++) {
        struct stream *stream = &node->streams[i];

        stream->watch = loop_watch_open(node->options.loop, fds[i], on_stream, stream);
        is_whole &= stream->watch != NULL;
    }
    node->channel = loop_watch_open(node->options.loop, spawn->channel, on_channel,
                                    node);
    if (!is_whole || !node->channel)
        return -ENOMEM;
    ssh_node_pause(node, false);
    return 0;
}

int ssh_node_open(struct ssh_node **out, const struct ssh_node_options *options,
                  const char *endpoint, struct ctrun_error *err)
{
    struct ssh_node *node = ct_zalloc(sizeof *node);
    char **argv = options->job->argv;
    struct ct_env env = {0};
    struct ssh_spawn spawn;
    int rc = -ENOMEM;

    if (!node)
        return ct_fail(err, rc, "out of memory");
    node->options = *options;
    for (int i = 0; i < STREAMS; i++) {
        node->streams[i] = (struct stream){.node = node, .number = i + 1};
        ct_buf_init(&node->streams[i].rest, 4 * READ_BYTES);
    }
    if (fill_env(&env, options->job, options->place, endpoint) == 0 &&
        ssh_stage_receive_apply(options->receive, &env, &argv) >= 0) {
        spawn = (struct ssh_spawn){.path = options->job->program,
                                   .argv = argv,
                                   .env = env.list,
                                   .has_channel = true};
        rc = node->pid = ssh_spawn(&spawn, err);
        if (rc > 0)
            rc = watch(node, &spawn);
    } else {
        (void)ct_fail(err, rc, "out of memory");
    }
    ct_env_deinit(&env);
    if (argv != options->job->argv)
        free(argv);
    if (rc < 0) {
        ssh_node_close(node);
        return rc;
    }
    *out = node;
    return 0;
}

void ssh_node_signal(struct ssh_node *node, int signal)
{
    if (node && node->pid > 0)
        (void)kill(node->pid, signal);
}

void ssh_node_reap(struct ssh_node *node)
{
    int status;

    if (!node || node->pid <= 0 || waitpid(node->pid, &status, WNOHANG) != node->pid)
        return;
    /* before callbacks: the pid may be reused now */
    node->pid = 0;
    while (read_channel(node) > 0)
        ;
    for (int i = 0; i < STREAMS; i++) {
        while (read_stream(&node->streams[i]) > 0)
            ;
        send_lines(&node->streams[i], true);
    }
    send_up(node, SSH_ENDED,
            WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_SIGNAL + WTERMSIG(status),
            "\0", node->verdict_bytes);
}

void ssh_node_close(struct ssh_node *node)
{
    if (!node)
        return;
    if (node->pid > 0)
        (void)kill(node->pid, SIGKILL);
    for (int i = 0; i < STREAMS; i++) {
        loop_watch_close(node->streams[i].watch);
        ct_buf_deinit(&node->streams[i].rest);
    }
    loop_watch_close(node->channel);
    free(node);
}
