/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_stage_receive.h"

#include <errno.h>
#include <unistd.h>

#include "launcher/stage/stage_map.h"
#include "launcher/stage/stage_piece.h"
#include "launcher/stage/stage_store.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/str.h"

enum {
    NEWS_MS = 500,
    NEED_BYTES = 32 * 1024,
};

enum receive_state {
    RECEIVE_OFFERED, /* receiving the manifest */
    RECEIVE_CHECKING,
    RECEIVE_TAKING,
    RECEIVE_WHOLE,
    RECEIVE_FAILED,
};

struct ssh_stage_receive {
    struct ssh_stage_receive_options options;
    enum receive_state state;
    struct ct_buf offer;
    struct stage_manifest manifest;
    struct stage_store *store;
    struct loop_timer *step;
    struct loop_timer *news;
    char *program; /* the copy of PROGRAM; NULL: none */
};

static void send_up(struct ssh_stage_receive *receive, enum ssh_kind kind, int code,
                    const void *data, size_t length)
{
    const struct ssh_message message = {.kind = kind,
                                        .host = receive->options.place,
                                        .code = code,
                                        .data = data,
                                        .length = length};

    receive->options.on_message(receive->options.context, &message);
}

static void fail(struct ssh_stage_receive *receive, const struct ctrun_error *err)
{
    receive->state = RECEIVE_FAILED;
    loop_timer_stop(receive->step);
    loop_timer_stop(receive->news);
    stage_store_close(receive->store, receive->manifest.is_removed);
    receive->store = NULL;
    send_up(receive, SSH_FAILED, err->code, err->text, strlen(err->text));
}

static void on_news(void *context)
{
    struct ssh_stage_receive *receive = context;
    uint8_t text[8];
    struct ct_writer out;

    ct_writer_init(&out, text, sizeof text);
    ct_write_u64(&out, receive->store ? stage_store_done(receive->store) : 0);
    loop_timer_set(receive->news, NEWS_MS);
    send_up(receive, SSH_STAGING, 0, text, out.length);
}

/* ---- The end ----------------------------------------------------------------------------- */

static int make_program(struct ssh_stage_receive *receive)
{
    const char *path = stage_store_path(receive->store);
    const size_t size = strlen(path) + strlen(receive->manifest.program) + 2;

    if (!*receive->manifest.program)
        return 0;
    if (!(receive->program = ct_zalloc(size)))
        return -ENOMEM;
    (void)ct_format(receive->program, size, "%s/%s", path, receive->manifest.program);
    return 0;
}

static void check_whole(struct ssh_stage_receive *receive)
{
    struct ctrun_error err;

    if (stage_store_needs(receive->store)->count > 0)
        return;
    if (stage_store_settle(receive->store, &err) < 0) {
        fail(receive, &err);
    } else if (make_program(receive) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "out of memory");
        fail(receive, &err);
    } else {
        receive->state = RECEIVE_WHOLE;
        stage_manifest_drop(&receive->manifest);
        send_up(receive, SSH_STAGED, 0, NULL, 0);
    }
}

/* ---- What is missing --------------------------------------------------------------------- */

static void send_needs(struct ssh_stage_receive *receive)
{
    const struct stage_set *needs = stage_store_needs(receive->store);
    uint8_t data[NEED_BYTES];
    uint32_t from = 0;
    size_t length;

    do {
        length = stage_set_encode(needs, &from, data, sizeof data);
        send_up(receive, SSH_NEED, from >= needs->size, data, length);
    } while (from < needs->size);
}

static void on_step(void *context)
{
    struct ssh_stage_receive *receive = context;
    struct ctrun_error err;
    const int rc = stage_store_check(receive->store, &err);

    if (rc == 1) {
        loop_timer_set(receive->step, 0);
    } else if (rc < 0) {
        fail(receive, &err);
    } else {
        receive->state = RECEIVE_TAKING;
        send_needs(receive);
        check_whole(receive);
    }
}

/* The base folder: --stage-dir, else TMPDIR as sent to all hosts, else this host's TMPDIR, else
 * /tmp. */
static const char *base_of(const struct ssh_stage_receive *receive)
{
    const char *base = receive->manifest.dir;

    if (!*base)
        base = ct_env_find(receive->options.job->env, "TMPDIR");
    if (!base || !*base)
        base = ct_env_find(environ, "TMPDIR");
    return base && *base ? base : "/tmp";
}

static void begin(struct ssh_stage_receive *receive)
{
    struct ctrun_error err;
    int rc = stage_manifest_decode(&receive->manifest, ct_buf_data(&receive->offer),
                                   ct_buf_length(&receive->offer));

    if (rc < 0)
        (void)ct_fail(&err, CTRUN_E_STAGE, "%s",
                      rc == -ENOMEM ? "out of memory for the list of files"
                                    : "the list of files is malformed");
    else
        rc = stage_store_open(&receive->store, &receive->manifest, base_of(receive),
                              &err);
    if (rc < 0) {
        fail(receive, &err);
        return;
    }
    ct_buf_deinit(&receive->offer);
    receive->state = RECEIVE_CHECKING;
    loop_timer_set(receive->step, 0);
}

static void on_offer(struct ssh_stage_receive *receive,
                     const struct ssh_message *message)
{
    struct ctrun_error err;

    if (ct_buf_append(&receive->offer, message->data, message->length) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "out of memory for the list of files");
        fail(receive, &err);
    } else if (message->code) {
        begin(receive);
    }
}

static void on_piece(struct ssh_stage_receive *receive,
                     const struct ssh_message *message)
{
    struct stage_piece piece;
    struct ctrun_error err;

    if (stage_piece_decode(&piece, message->data, message->length) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "received a malformed piece of a file");
        fail(receive, &err);
    } else if (stage_store_put(receive->store, piece.chunk, piece.offset, piece.data,
                               piece.length, &err) < 0) {
        fail(receive, &err);
    } else {
        check_whole(receive);
    }
}

void ssh_stage_receive_on_message(struct ssh_stage_receive *receive,
                                  const struct ssh_message *message)
{
    if (message->kind == SSH_STAGE && receive->state == RECEIVE_OFFERED)
        on_offer(receive, message);
    else if (message->kind == SSH_PIECE && receive->state == RECEIVE_TAKING)
        on_piece(receive, message);
}

/* ---- The run ----------------------------------------------------------------------------- */

void ssh_stage_receive_rest(struct ssh_stage_receive *receive)
{
    if (receive)
        loop_timer_stop(receive->news);
}

int ssh_stage_receive_apply(const struct ssh_stage_receive *receive, struct ct_env *env,
                            char ***argv)
{
    char **words;
    uint32_t count = 0;
    int rc;

    if (!receive || receive->state != RECEIVE_WHOLE)
        return 0;
    rc = stage_map_env(env, &receive->manifest, stage_store_path(receive->store));
    if (rc < 0)
        return rc;
    while ((*argv)[count])
        count++;
    if (!(words = ct_zalloc_array((size_t)count + 1, sizeof *words)))
        return -ENOMEM;
    memcpy(words, *argv, count * sizeof *words);
    if (receive->program && receive->manifest.word < count)
        words[receive->manifest.word] = receive->program;
    *argv = words;
    return 1;
}

/* ---- Life -------------------------------------------------------------------------------- */

struct ssh_stage_receive *
ssh_stage_receive_open(const struct ssh_stage_receive_options *options)
{
    struct ssh_stage_receive *receive = ct_zalloc(sizeof *receive);

    if (!receive)
        return NULL;
    receive->options = *options;
    ct_buf_init(&receive->offer, STAGE_MANIFEST_MAX_BYTES);
    receive->step = loop_timer_open(options->loop, on_step, receive);
    receive->news = loop_timer_open(options->loop, on_news, receive);
    if (!receive->step || !receive->news) {
        ssh_stage_receive_close(receive);
        return NULL;
    }
    loop_timer_set(receive->news, NEWS_MS);
    return receive;
}

void ssh_stage_receive_close(struct ssh_stage_receive *receive)
{
    if (!receive)
        return;
    loop_timer_close(receive->step);
    loop_timer_close(receive->news);
    stage_store_close(receive->store, receive->manifest.is_removed);
    stage_manifest_deinit(&receive->manifest);
    ct_buf_deinit(&receive->offer);
    free(receive->program);
    free(receive);
}
