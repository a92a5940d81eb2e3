/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output/logfile.h"

#include <errno.h>

#include "agent/loop/limits.h"
#include "agent/output/logfile_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

static struct logfile_target *find_target(struct logfile_writer *writer,
                                          const char *path)
{
    ct_list_for_each(struct logfile_target, target, &writer->targets, node) {
        if (strcmp(target->path, path) == 0)
            return target;
    }
    return NULL;
}

static struct logfile_target *create_target(const struct logfile_options *options)
{
    struct logfile_target *target = ct_zalloc(sizeof *target);

    if (!target || !(target->path = ct_strdup(options->path))) {
        free(target);
        return NULL;
    }
    ct_list_init(&target->node);
    ct_list_init(&target->ready);
    ct_list_init(&target->users);
    ct_buf_init(&target->queue, LOGFILE_QUEUE_MAX_BYTES);
    ct_buf_init(&target->taken, LOGFILE_QUEUE_MAX_BYTES);
    target->fd = -1;
    target->keep = options->keep;
    target->appends = options->appends;
    target->cap.max_bytes = options->max_bytes;
    return target;
}

/* With the mutex held. A target is in the list at most once; the thread takes it out before it
 * writes, so that data pushed meanwhile puts it in again. */
static void make_ready(struct logfile_writer *writer, struct logfile_target *target)
{
    if (!ct_list_is_empty(&target->ready))
        return;
    ct_list_add(&writer->ready, &target->ready);
    pthread_cond_signal(&writer->work);
}

int logfile_open(struct logfile_writer *writer, struct logfile **out,
                 const struct logfile_options *options, struct ctrun_error *err)
{
    struct logfile *file = ct_zalloc(sizeof *file);
    struct logfile_target *target = NULL;
    int rc = logfile_need_thread(writer);

    if (rc == 0 && file) {
        pthread_mutex_lock(&writer->mutex);
        target = find_target(writer, options->path);
        if (!target && (target = create_target(options)))
            ct_list_add(&writer->targets, &target->node);
        if (target) {
            ct_list_add(&target->users, &file->node);
            /* create the file, even if nothing is written to it */
            make_ready(writer, target);
        }
        pthread_mutex_unlock(&writer->mutex);
    }
    if (!target) {
        free(file);
        return ct_fail(err, rc < 0 ? rc : -ENOMEM, "log file %s: %s", options->path,
                       strerror(rc < 0 ? -rc : ENOMEM));
    }
    ct_list_init(&file->roomy);
    file->writer = writer;
    file->target = target;
    file->on_room = options->on_room;
    file->context = options->context;
    *out = file;
    return 0;
}

/* Notes the bytes that were left out, at the place in the file where they are missing. */
static void append_note(struct logfile_target *target)
{
    if (target->left_out == 0 ||
        ct_buf_printf(&target->queue,
                      "\n[ctrun: %llu bytes left out here: the file "
                      "system did not answer]\n",
                      (unsigned long long)target->left_out) < 0)
        return;
    target->left_out = 0;
}

/* With the mutex held. */
static bool is_over_mark(const struct logfile_target *target)
{
    return ct_buf_length(&target->queue) >= LOGFILE_HIGH_BYTES;
}

/* On the loop; never blocks on the disk: the thread releases the mutex while it writes. While
 * the file system does not answer, bytes that do not fit into the queue are only counted. */
void logfile_push(struct logfile *file, const void *data, size_t length)
{
    struct logfile_writer *writer = file->writer;
    struct logfile_target *target = file->target;

    pthread_mutex_lock(&writer->mutex);
    if (!target->is_broken && length > 0) {
        if (!is_over_mark(target))
            append_note(target);
        if ((writer->is_stalled && is_over_mark(target)) ||
            ct_buf_append(&target->queue, data, length) < 0)
            target->left_out += length;
        make_ready(writer, target);
    }
    pthread_mutex_unlock(&writer->mutex);
}

bool logfile_is_full(struct logfile *file)
{
    struct logfile_writer *writer = file->writer;
    bool is_full;

    pthread_mutex_lock(&writer->mutex);
    is_full = is_over_mark(file->target) && !file->target->is_broken &&
              !writer->is_stalled;
    file->wants_room = is_full;
    pthread_mutex_unlock(&writer->mutex);
    if (is_full)
        logfile_watch_stall(writer);
    return is_full;
}

void logfile_close(struct logfile *file)
{
    if (!file)
        return;
    pthread_mutex_lock(&file->writer->mutex);
    append_note(file->target);
    ct_list_remove(&file->node);
    ct_list_remove(&file->roomy);
    /* with its last user gone, the thread closes it */
    make_ready(file->writer, file->target);
    pthread_mutex_unlock(&file->writer->mutex);
    free(file);
}
