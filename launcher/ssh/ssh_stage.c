/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_stage.h"

#include <errno.h>
#include <unistd.h>

#include "launcher/report/messages.h"
#include "launcher/stage/stage_piece.h"
#include "launcher/stage/stage_set.h"
#include "launcher/stage/stage_text.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

enum {
    STEP_MS = 20,
    WATCH_MS = 250,
    PAUSE_MS = 2000, /* longer since the last check: this process was stopped */
    PROGRESS_MS = 3000,
    PIECE_BYTES = 32 * 1024,
    NAMES_BYTES = 400,
};

enum stage_state {
    STAGE_SCANNING,
    STAGE_OFFERING,
    STAGE_ASKING,
    STAGE_SENDING,
    STAGE_ENDING,
    STAGE_OVER,
};

struct host {
    bool has_asked; /* all its NEEDs have arrived */
    bool is_staged;
    uint64_t done; /* bytes that it reports */
    uint64_t received_ms;
};

struct ssh_stage {
    struct ssh_stage_options options;
    enum stage_state state;
    bool is_scanned;
    bool is_begun;
    struct loop_timer *step;
    struct loop_timer *watch;
    struct host *hosts;
    struct ct_buf offer;
    struct stage_set needs; /* of all hosts */
    uint64_t needed;        /* their bytes */
    /* Sending. */
    uint32_t chunk;
    uint32_t offset;
    const struct stage_entry *entry;
    int file;
    uint64_t read; /* bytes read from needed chunks */
    uint64_t sent; /* bytes sent, over all connections */
    uint8_t *data;
    /* Watching. */
    uint64_t begun_ms;
    uint64_t printed_ms;
    uint64_t moved_ms;
    uint64_t watched_ms;
    uint64_t moved; /* the last progress_of() */
};

static const struct stage_manifest *manifest_of(const struct ssh_stage *stage)
{
    return &stage->options.plan->manifest;
}

static uint32_t hosts_total(const struct ssh_stage *stage)
{
    return stage->options.job->total;
}

/* True when the host is READY: it gets everything. */
static bool is_there(const struct ssh_stage *stage, uint32_t place)
{
    return ssh_subtree_state(stage->options.subtree, place) == SSH_HOST_READY;
}

/* Reports the first error only: later errors find STAGE_OVER. */
static void fail(struct ssh_stage *stage, const struct ctrun_error *err)
{
    if (stage->state == STAGE_OVER)
        return;
    stage->state = STAGE_OVER;
    loop_timer_stop(stage->step);
    loop_timer_stop(stage->watch);
    stage->options.on_fail(stage->options.context, err);
}

/* ---- The end ----------------------------------------------------------------------------- */

static uint32_t count_there(const struct ssh_stage *stage)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < hosts_total(stage); i++)
        count += is_there(stage, i);
    return count;
}

static void report_end(struct ssh_stage *stage)
{
    const uint64_t took_ms = ct_now_ms() - stage->begun_ms;
    const uint32_t count = count_there(stage);
    char text[200];
    char bytes[STAGE_TEXT_MAX];
    char took[MESSAGES_SPAN_MAX];

    ct_event_emit("staged", CT_INT("hosts", count),
                  CT_INT("entries", manifest_of(stage)->count),
                  CT_INT("bytes", manifest_of(stage)->bytes),
                  CT_INT("needed_bytes", stage->needed),
                  CT_INT("sent_bytes", stage->sent), CT_INT("duration_ms", took_ms));
    if (stage->printed_ms == 0)
        return;
    stage_text_bytes(bytes, stage->needed);
    messages_format_span(took, took_ms);
    (void)ct_format(text, sizeof text, "staged %s to %u %s in %s", bytes, count,
                    count == 1 ? "node" : "nodes", took);
    stage->options.on_notice(stage->options.context, text);
}

/* Called after every message while ENDING, also after the loss of a host, which is not awaited any
 * more. */
static void check_staged(struct ssh_stage *stage)
{
    for (uint32_t i = 0; i < hosts_total(stage); i++)
        if (is_there(stage, i) && !stage->hosts[i].is_staged)
            return;
    stage->state = STAGE_OVER;
    loop_timer_stop(stage->watch);
    report_end(stage);
    stage_manifest_drop(&stage->options.plan->manifest);
    stage->options.on_over(stage->options.context);
}

/* ---- Sending ----------------------------------------------------------------------------- */

static void end_file(struct ssh_stage *stage)
{
    ct_close(&stage->file);
    stage->entry = NULL;
}

/* Chunks are sent in the manifest's order, so a file is opened once. */
static int switch_file(struct ssh_stage *stage, struct ctrun_error *err)
{
    const struct stage_entry *entry = stage_manifest_file(manifest_of(stage),
                                                          stage->chunk);

    if (stage->entry == entry)
        return 0;
    end_file(stage);
    stage->file = stage_scan_open_file(manifest_of(stage), entry, err);
    if (stage->file < 0)
        return stage->file;
    stage->entry = entry;
    return 0;
}

/* One piece of the chunk. */
static int send_piece(struct ssh_stage *stage, struct ctrun_error *err)
{
    const uint32_t left = stage_chunk_size(stage->entry, stage->chunk) - stage->offset;
    struct ssh_message message = {.kind = SSH_PIECE, .data = stage->data};
    ssize_t n;

    stage_piece_put_head(stage->data, stage->chunk, stage->offset);
    do
        n = pread(
            stage->file, stage->data + STAGE_PIECE_HEAD_BYTES,
            left < PIECE_BYTES ? left : PIECE_BYTES,
            (off_t)(stage_chunk_offset(stage->entry, stage->chunk) + stage->offset));
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return ct_fail(err, CTRUN_E_STAGE, "--stage: %.800s: %s", stage->entry->path,
                       n < 0 ? strerror(errno)
                             : "became shorter while it was being staged");
    message.length = STAGE_PIECE_HEAD_BYTES + (size_t)n;
    stage->sent += (uint64_t)n * ssh_subtree_send(stage->options.subtree, &message);
    stage->offset += (uint32_t)n;
    stage->read += (uint64_t)n;
    if (stage->offset == stage_chunk_size(stage->entry, stage->chunk)) {
        stage->offset = 0;
        stage->chunk = stage_set_next(&stage->needs, stage->chunk + 1);
    }
    return 0;
}

/* Sends for STEP_MS at a time, so that the loop reads its connections in between. */
static void send_more(struct ssh_stage *stage)
{
    const uint64_t until_ms = ct_deadline_ms(STEP_MS);
    struct ctrun_error err;

    while (stage->state == STAGE_SENDING && stage->chunk < stage->needs.size) {
        if (ssh_subtree_is_full(stage->options.subtree))
            return; /* ssh_stage_room() continues */
        if (ct_left_ms(until_ms) == 0) {
            loop_timer_set(stage->step, 0);
            return;
        }
        if (switch_file(stage, &err) < 0 || send_piece(stage, &err) < 0) {
            fail(stage, &err);
            return;
        }
    }
    if (stage->state != STAGE_SENDING)
        return;
    end_file(stage);
    stage->state = STAGE_ENDING;
    check_staged(stage);
}

/* ---- Asking ------------------------------------------------------------------------------ */

static void check_asked(struct ssh_stage *stage)
{
    const struct stage_manifest *manifest = manifest_of(stage);

    for (uint32_t i = 0; i < hosts_total(stage); i++)
        if (is_there(stage, i) && !stage->hosts[i].has_asked)
            return;
    stage->chunk = stage_set_next(&stage->needs, 0);
    for (uint32_t i = stage->chunk; i < stage->needs.size;
         i = stage_set_next(&stage->needs, i + 1))
        stage->needed += stage_chunk_size(stage_manifest_file(manifest, i), i);
    stage->state = STAGE_SENDING;
    loop_timer_set(stage->step, 0);
}

/* Collects the chunks that any host needs: each chunk is read once, and relays pass it on to the
 * hosts that need it. */
static void on_needs(struct ssh_stage *stage, const struct ssh_message *message)
{
    struct host *host = &stage->hosts[message->host];
    struct ctrun_error err;

    if (stage->state < STAGE_OFFERING || host->has_asked)
        return;
    if (stage_set_decode(&stage->needs, message->data, message->length) < 0) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "--stage: %s sent a malformed message",
                      ssh_job_host(stage->options.job, message->host));
        fail(stage, &err);
        return;
    }
    host->has_asked = message->code != 0;
}

/* ---- Offering ---------------------------------------------------------------------------- */

static void offer_more(struct ssh_stage *stage)
{
    struct ssh_message message = {.kind = SSH_STAGE};

    while (stage->state == STAGE_OFFERING &&
           !ssh_subtree_is_full(stage->options.subtree)) {
        message.data = ct_buf_data(&stage->offer);
        message.length = ct_buf_length(&stage->offer);
        message.code = message.length <= PIECE_BYTES;
        if (!message.code)
            message.length = PIECE_BYTES;
        stage->state = message.code ? STAGE_ASKING : STAGE_OFFERING;
        (void)ssh_subtree_send(stage->options.subtree, &message);
        ct_buf_consume(&stage->offer, message.length);
    }
    if (stage->state != STAGE_ASKING)
        return;
    ct_buf_deinit(&stage->offer);
    check_asked(stage); /* all hosts may be lost */
}

static void check_begin(struct ssh_stage *stage)
{
    struct ctrun_error err;
    int rc;

    if (!stage->is_scanned || !stage->is_begun || stage->state != STAGE_SCANNING)
        return;
    if ((rc = stage_set_init(&stage->needs, manifest_of(stage)->chunk_count)) < 0 ||
        (rc = stage_manifest_encode(&stage->offer, manifest_of(stage))) < 0) {
        if (rc == -ENOMEM)
            (void)ct_fail(&err, CTRUN_E_STAGE, "--stage: out of memory");
        else
            (void)ct_fail(&err, CTRUN_E_STAGE,
                          "--stage: the list of %u files and folders is longer than %d "
                          "MiB; stage an archive of them, or fewer files",
                          manifest_of(stage)->count, STAGE_MANIFEST_MAX_BYTES >> 20);
        fail(stage, &err);
        return;
    }
    stage->moved_ms = ct_now_ms();
    for (uint32_t i = 0; i < hosts_total(stage); i++)
        stage->hosts[i].received_ms = stage->moved_ms;
    stage->state = STAGE_OFFERING;
    offer_more(stage);
}

/* ---- Steps ------------------------------------------------------------------------------- */

static void scan_more(struct ssh_stage *stage)
{
    struct ctrun_error err;
    const int rc = stage_scan_step(stage->options.plan->scan, &err);

    if (rc == 1) {
        loop_timer_set(stage->step, 0);
    } else if (rc < 0) {
        fail(stage, &err);
    } else {
        stage->is_scanned = true;
        check_begin(stage);
    }
}

static void on_step(void *context)
{
    struct ssh_stage *stage = context;

    switch (stage->state) {
    case STAGE_SCANNING: scan_more(stage); break;
    case STAGE_OFFERING: offer_more(stage); break;
    case STAGE_SENDING: send_more(stage); break;
    case STAGE_ASKING:
    case STAGE_ENDING:
    case STAGE_OVER: break;
    }
}

/* ---- Watching ---------------------------------------------------------------------------- */

/* Lists the hosts that are not STAGED and have sent nothing since `silent_since_ms`. */
static void list_late(const struct ssh_stage *stage, uint64_t silent_since_ms,
                      char *list, size_t size)
{
    list[0] = '\0';
    for (uint32_t i = 0; i < hosts_total(stage); i++)
        if (is_there(stage, i) && !stage->hosts[i].is_staged &&
            stage->hosts[i].received_ms <= silent_since_ms)
            (void)ct_append_item(list, size, ",", "%s",
                                 ssh_job_host(stage->options.job, i));
}

/* Only used to detect progress: the number changes whenever there is any. */
static uint64_t progress_of(const struct ssh_stage *stage)
{
    uint64_t sum = stage->read + stage->state + ct_buf_length(&stage->offer);

    for (uint32_t i = 0; i < hosts_total(stage); i++)
        sum += stage->hosts[i].done + stage->hosts[i].has_asked +
               stage->hosts[i].is_staged;
    return sum;
}

static void check_late(struct ssh_stage *stage, uint64_t now_ms)
{
    const uint64_t limit_ms = stage->options.job->reach_ms;
    const uint64_t moved = progress_of(stage);
    char names[NAMES_BYTES];
    struct ctrun_error err;

    /* This process was blocked (stopped, or a source hung): messages of hosts may wait unread. */
    if (now_ms - stage->watched_ms > PAUSE_MS) {
        stage->moved_ms = now_ms;
        for (uint32_t i = 0; i < hosts_total(stage); i++)
            stage->hosts[i].received_ms = now_ms;
    }
    stage->watched_ms = now_ms;
    if (moved != stage->moved) {
        stage->moved = moved;
        stage->moved_ms = now_ms;
    }
    if (now_ms < limit_ms || stage->state == STAGE_SCANNING)
        return;
    list_late(stage, now_ms - limit_ms, names, sizeof names);
    if (*names) {
        (void)ct_fail(&err, CTRUN_E_STAGE, "--stage: nothing received from %s for %g s",
                      names, (double)limit_ms / 1000.0);
    } else if (now_ms - stage->moved_ms >= limit_ms) {
        list_late(stage, now_ms, names, sizeof names);
        (void)ct_fail(&err, CTRUN_E_STAGE,
                      "--stage: no progress for %g s; files are still missing on: %s",
                      (double)limit_ms / 1000.0, names);
    } else {
        return;
    }
    fail(stage, &err);
}

static void report_progress(struct ssh_stage *stage, uint64_t now_ms)
{
    const uint32_t count = count_there(stage);
    const char *nodes = count == 1 ? "node" : "nodes";
    char done[STAGE_TEXT_MAX];
    char all[STAGE_TEXT_MAX];
    char text[200];
    uint64_t sum = 0;

    if (now_ms - (stage->printed_ms ? stage->printed_ms : stage->begun_ms) <
        PROGRESS_MS)
        return;
    stage->printed_ms = now_ms;
    for (uint32_t i = 0; i < hosts_total(stage); i++)
        sum += stage->hosts[i].done;
    if (stage->state == STAGE_SCANNING) {
        stage_text_bytes(done, stage_scan_bytes(stage->options.plan->scan));
        (void)ct_format(text, sizeof text, "staging: read %s in %u files and folders%s",
                        done, manifest_of(stage)->count,
                        stage->is_scanned ? ", waiting for the hosts" : "");
    } else if (stage->state <= STAGE_ASKING) {
        stage_text_bytes(done, count ? sum / count : 0);
        stage_text_bytes(all, manifest_of(stage)->bytes);
        (void)ct_format(text, sizeof text, "staging: %u %s compared %s of %s", count,
                        nodes, done, all);
    } else {
        stage_text_bytes(done, stage->read);
        stage_text_bytes(all, stage->needed);
        (void)ct_format(text, sizeof text, "staging %s of %s to %u %s", done, all,
                        count, nodes);
    }
    stage->options.on_notice(stage->options.context, text);
}

static void on_watch(void *context)
{
    struct ssh_stage *stage = context;
    const uint64_t now_ms = ct_now_ms();

    loop_timer_set(stage->watch, WATCH_MS);
    report_progress(stage, now_ms);
    check_late(stage, now_ms);
}

/* ---- From outside ------------------------------------------------------------------------ */

void ssh_stage_begin(struct ssh_stage *stage)
{
    stage->is_begun = true;
    check_begin(stage);
}

void ssh_stage_on_message(struct ssh_stage *stage, const struct ssh_message *message)
{
    struct host *host = &stage->hosts[message->host];
    struct ct_reader in;

    if (stage->state == STAGE_OVER)
        return;
    host->received_ms = ct_now_ms();
    if (message->kind == SSH_NEED) {
        on_needs(stage, message);
    } else if (message->kind == SSH_STAGING) {
        ct_reader_init(&in, message->data, message->length);
        host->done = ct_read_u64(&in);
    } else if (message->kind == SSH_STAGED) {
        host->is_staged = true;
    }
    if (stage->state == STAGE_ASKING)
        check_asked(stage);
    else if (stage->state == STAGE_ENDING)
        check_staged(stage);
}

void ssh_stage_room(struct ssh_stage *stage)
{
    if (stage && (stage->state == STAGE_OFFERING || stage->state == STAGE_SENDING))
        loop_timer_set(stage->step, 0);
}

/* ---- Life -------------------------------------------------------------------------------- */

struct ssh_stage *ssh_stage_open(const struct ssh_stage_options *options)
{
    struct ssh_stage *stage = ct_zalloc(sizeof *stage);

    if (!stage)
        return NULL;
    stage->options = *options;
    stage->file = -1;
    stage->begun_ms = stage->watched_ms = ct_now_ms();
    ct_buf_init(&stage->offer, STAGE_MANIFEST_MAX_BYTES);
    stage->hosts = ct_zalloc_array(options->job->total, sizeof *stage->hosts);
    stage->data = ct_zalloc(STAGE_PIECE_HEAD_BYTES + PIECE_BYTES);
    stage->step = loop_timer_open(options->loop, on_step, stage);
    stage->watch = loop_timer_open(options->loop, on_watch, stage);
    if (!stage->hosts || !stage->data || !stage->step || !stage->watch) {
        ssh_stage_close(stage);
        return NULL;
    }
    loop_timer_set(stage->step, 0);
    loop_timer_set(stage->watch, WATCH_MS);
    return stage;
}

void ssh_stage_close(struct ssh_stage *stage)
{
    if (!stage)
        return;
    end_file(stage);
    loop_timer_close(stage->step);
    loop_timer_close(stage->watch);
    ct_buf_deinit(&stage->offer);
    stage_set_deinit(&stage->needs);
    free(stage->hosts);
    free(stage->data);
    free(stage);
}
