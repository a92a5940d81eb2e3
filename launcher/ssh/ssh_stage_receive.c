/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_stage_receive.h"

#include <errno.h>
#include <string.h>
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

enum intake_state {
    INTAKE_OFFERED, /* the manifest is coming */
    INTAKE_CHECKING,
    INTAKE_TAKING,
    INTAKE_WHOLE,
    INTAKE_FAILED,
};

struct ssh_stage_receive {
    struct ssh_stage_receive_options options;
    enum intake_state state;
    struct ct_buf offer;
    struct stage_manifest manifest;
    struct stage_store *store;
    struct loop_timer *step;
    struct loop_timer *news;
    char *program; /* its copy; NULL: it has none */
};

static void tell(struct ssh_stage_receive *intake, enum ssh_kind kind, int code,
                 const void *data, size_t length)
{
    const struct ssh_message message = {.kind = kind,
                                        .host = intake->options.place,
                                        .code = code,
                                        .data = data,
                                        .length = length};

    intake->options.on_message(intake->options.context, &message);
}

static void fail(struct ssh_stage_receive *intake, const struct ctrun_error *err)
{
    intake->state = INTAKE_FAILED;
    loop_timer_stop(intake->step);
    loop_timer_stop(intake->news);
    stage_store_close(intake->store, intake->manifest.is_removed);
    intake->store = NULL;
    tell(intake, SSH_FAILED, err->code, err->text, strlen(err->text));
}

static void on_news(void *context)
{
    struct ssh_stage_receive *intake = context;
    uint8_t text[8];
    struct ct_writer out;

    ct_writer_init(&out, text, sizeof text);
    ct_write_u64(&out, intake->store ? stage_store_done(intake->store) : 0);
    loop_timer_set(intake->news, NEWS_MS);
    tell(intake, SSH_STAGING, 0, text, out.length);
}

/* ---- The end ----------------------------------------------------------------------------- */

static int make_program(struct ssh_stage_receive *intake)
{
    const char *path = stage_store_path(intake->store);
    const size_t size = strlen(path) + strlen(intake->manifest.program) + 2;

    if (!*intake->manifest.program)
        return 0;
    if (!(intake->program = ct_zalloc(size)))
        return -ENOMEM;
    (void)ct_format(intake->program, size, "%s/%s", path, intake->manifest.program);
    return 0;
}

static void check_whole(struct ssh_stage_receive *intake)
{
    struct ctrun_error err;

    if (stage_store_needs(intake->store)->count > 0)
        return;
    if (stage_store_settle(intake->store, &err) < 0) {
        fail(intake, &err);
    } else if (make_program(intake) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "out of memory");
        fail(intake, &err);
    } else {
        intake->state = INTAKE_WHOLE;
        stage_manifest_drop(&intake->manifest);
        tell(intake, SSH_STAGED, 0, NULL, 0);
    }
}

/* ---- What is missing --------------------------------------------------------------------- */

static void tell_needs(struct ssh_stage_receive *intake)
{
    const struct stage_set *needs = stage_store_needs(intake->store);
    uint8_t data[NEED_BYTES];
    uint32_t from = 0;
    size_t length;

    do {
        length = stage_set_encode(needs, &from, data, sizeof data);
        tell(intake, SSH_NEED, from >= needs->size, data, length);
    } while (from < needs->size);
}

static void on_step(void *context)
{
    struct ssh_stage_receive *intake = context;
    struct ctrun_error err;
    const int rc = stage_store_check(intake->store, &err);

    if (rc == 1) {
        loop_timer_set(intake->step, 0);
    } else if (rc < 0) {
        fail(intake, &err);
    } else {
        intake->state = INTAKE_TAKING;
        tell_needs(intake);
        check_whole(intake);
    }
}

/* The user's choice, what he has set for all hosts, what this host has. */
static const char *base_of(const struct ssh_stage_receive *intake)
{
    const char *base = intake->manifest.dir;

    if (!*base)
        base = ct_env_find(intake->options.job->env, "TMPDIR");
    if (!base || !*base)
        base = ct_env_find(environ, "TMPDIR");
    return base && *base ? base : "/tmp";
}

static void begin(struct ssh_stage_receive *intake)
{
    struct ctrun_error err = {.code = CTRUN_E_STAGE,
                              .text = "the list of files is malformed"};

    if (stage_manifest_decode(&intake->manifest, ct_buf_data(&intake->offer),
                              ct_buf_length(&intake->offer)) < 0 ||
        stage_store_open(&intake->store, &intake->manifest, base_of(intake), &err) <
            0) {
        fail(intake, &err);
        return;
    }
    ct_buf_deinit(&intake->offer);
    intake->state = INTAKE_CHECKING;
    loop_timer_set(intake->step, 0);
}

static void take_offer(struct ssh_stage_receive *intake,
                       const struct ssh_message *message)
{
    struct ctrun_error err;

    if (ct_buf_append(&intake->offer, message->data, message->length) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE,
                      "the list of files does not fit into memory");
        fail(intake, &err);
    } else if (message->code) {
        begin(intake);
    }
}

static void take_piece(struct ssh_stage_receive *intake,
                       const struct ssh_message *message)
{
    struct stage_piece piece;
    struct ctrun_error err;

    if (stage_piece_decode(&piece, message->data, message->length) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "what came is no piece of a file");
        fail(intake, &err);
    } else if (stage_store_put(intake->store, piece.chunk, piece.offset, piece.data,
                               piece.length, &err) < 0) {
        fail(intake, &err);
    } else {
        check_whole(intake);
    }
}

void ssh_stage_receive_take(struct ssh_stage_receive *intake,
                            const struct ssh_message *message)
{
    if (message->kind == SSH_STAGE && intake->state == INTAKE_OFFERED)
        take_offer(intake, message);
    else if (message->kind == SSH_PIECE && intake->state == INTAKE_TAKING)
        take_piece(intake, message);
}

/* ---- The run ----------------------------------------------------------------------------- */

void ssh_stage_receive_rest(struct ssh_stage_receive *intake)
{
    if (intake)
        loop_timer_stop(intake->news);
}

int ssh_stage_receive_apply(const struct ssh_stage_receive *intake, struct ct_env *env,
                            char ***argv)
{
    char **words;
    uint32_t count = 0;
    int rc;

    if (!intake || intake->state != INTAKE_WHOLE)
        return 0;
    rc = stage_map_env(env, &intake->manifest, stage_store_path(intake->store));
    if (rc < 0)
        return rc;
    while ((*argv)[count])
        count++;
    if (!(words = ct_zalloc_array((size_t)count + 1, sizeof *words)))
        return -ENOMEM;
    memcpy(words, *argv, count * sizeof *words);
    if (intake->program && intake->manifest.word < count)
        words[intake->manifest.word] = intake->program;
    *argv = words;
    return 1;
}

/* ---- Life -------------------------------------------------------------------------------- */

struct ssh_stage_receive *
ssh_stage_receive_open(const struct ssh_stage_receive_options *options)
{
    struct ssh_stage_receive *intake = ct_zalloc(sizeof *intake);

    if (!intake)
        return NULL;
    intake->options = *options;
    ct_buf_init(&intake->offer, STAGE_MANIFEST_MAX_BYTES);
    intake->step = loop_timer_open(options->loop, on_step, intake);
    intake->news = loop_timer_open(options->loop, on_news, intake);
    if (!intake->step || !intake->news) {
        ssh_stage_receive_close(intake);
        return NULL;
    }
    loop_timer_set(intake->news, NEWS_MS);
    return intake;
}

void ssh_stage_receive_close(struct ssh_stage_receive *intake)
{
    if (!intake)
        return;
    loop_timer_close(intake->step);
    loop_timer_close(intake->news);
    stage_store_close(intake->store, intake->manifest.is_removed);
    stage_manifest_deinit(&intake->manifest);
    ct_buf_deinit(&intake->offer);
    free(intake->program);
    free(intake);
}
