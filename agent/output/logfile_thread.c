/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/output/logfile_private.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"

static int open_target(struct logfile_target *target)
{
    const int fresh = target->appends ? 0 : O_TRUNC;
    struct stat status = {0};

    target->fd = open(target->path,
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY |
                          O_NOFOLLOW | fresh,
                      0600);
    if (target->appends && target->fd >= 0)
        (void)fstat(target->fd, &status); /* size unknown: treat the file as new */
    target->cap.size = status.st_size > 0 ? (uint64_t)status.st_size : 0;
    target->cap.is_in_line = false;
    target->appends = false; /* after a full file, a new one is begun */
    return target->fd >= 0 ? 0 : -errno;
}

static int write_all(struct logfile_writer *writer, struct logfile_target *target,
                     const char *data, size_t length)
{
    while (length > 0) {
        const size_t part = length < LOGFILE_WRITE_BYTES ? length : LOGFILE_WRITE_BYTES;
        const ssize_t n = atomic_load(&writer->is_full) ? (errno = ENOSPC, -1)
                                                        : write(target->fd, data, part);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        logrotate_add(&target->cap, data, (size_t)n);
        atomic_fetch_add(&writer->progress, 1);
        data += n;
        length -= (size_t)n;
    }
    return 0;
}

/* The file is renamed before it is closed: a reader that follows it (ctrunctl logs -f) finds it
 * under the new name. */
static int rotate(struct logfile_target *target)
{
    const int rc = logrotate_shift(target->path, target->keep);

    close(target->fd);
    target->fd = -1;
    return rc < 0 ? rc : open_target(target);
}

/* Writes everything that was taken from the queue. 0 or a negative errno. */
static int write_taken(struct logfile_writer *writer, struct logfile_target *target)
{
    bool is_full;
    size_t length;
    int rc = target->fd < 0 ? open_target(target) : 0;

    while (rc == 0 && ct_buf_length(&target->taken) > 0) {
        const char *data = (const char *)ct_buf_data(&target->taken);

        length = logrotate_fit(&target->cap, data, ct_buf_length(&target->taken),
                               &is_full);
        rc = write_all(writer, target, data, length);
        ct_buf_consume(&target->taken, length);
        if (rc == 0 && is_full)
            rc = rotate(target);
    }
    ct_buf_consume(&target->taken, ct_buf_length(&target->taken));
    return rc;
}

static void report_broken(struct logfile_writer *writer, const char *path, int rc)
{
    const char *why = rc == -ELOOP ? "it is a symbolic link" : strerror(-rc);

    ct_event_emit("log_file_lost", CT_STR("path", path), CT_STR("why", why));
    if (writer->lost_count++ > 0)
        ct_info("log file %s: %s", path, why);
    else
        ct_warn(
            "log file %s: %s; workers keep running, but nothing more is written to it",
            path, why);
}

void logfile_call_roomy(struct logfile_writer *writer, struct logfile_target *target)
{
    bool is_any = false;

    ct_list_for_each(struct logfile, file, &target->users, node) {
        if (!file->wants_room)
            continue;
        file->wants_room = false;
        ct_list_remove(&file->roomy);
        ct_list_add(&writer->roomy, &file->roomy);
        is_any = true;
    }
    /* if the counter is full, a wake-up is pending already */
    if (is_any)
        (void)eventfd_write(writer->wake_fd, 1);
}

static void destroy_target(struct logfile_target *target)
{
    ct_list_remove(&target->node);
    ct_list_remove(&target->ready);
    ct_buf_deinit(&target->queue);
    ct_buf_deinit(&target->taken);
    if (target->fd >= 0)
        close(target->fd);
    free(target->path);
    free(target);
}

/* With the mutex held, which is released meanwhile: the loop fills one buffer while
 * the other is written. The target cannot vanish then: the thread alone destroys
 * targets, and only here. */
static void serve(struct logfile_writer *writer, struct logfile_target *target)
{
    const struct ct_buf queue = target->queue;
    int rc = 0;

    ct_list_remove(&target->ready);
    target->queue = target->taken;
    target->taken = queue;
    if (target->is_broken) {
        ct_buf_consume(&target->taken, ct_buf_length(&target->taken));
    } else {
        writer->busy = target->path;
        pthread_mutex_unlock(&writer->mutex);
        rc = write_taken(writer, target);
        if (rc < 0)
            report_broken(writer, target->path, rc);
        pthread_mutex_lock(&writer->mutex);
        writer->busy = NULL;
    }
    target->is_broken |= rc < 0;
    writer->is_stalled = false;
    logfile_call_roomy(writer, target);
    if (ct_list_is_empty(&target->users) && ct_buf_length(&target->queue) == 0)
        destroy_target(target);
}

void *logfile_write_ready(void *context)
{
    struct logfile_writer *writer = context;

    pthread_mutex_lock(&writer->mutex);
    for (;;) {
        if (!ct_list_is_empty(&writer->ready))
            serve(writer,
                  ct_list_entry(writer->ready.next, struct logfile_target, ready));
        else if (writer->is_ending)
            break;
        else
            pthread_cond_wait(&writer->work, &writer->mutex);
    }
    if (writer->lost_count > 1)
        ct_warn("%u more log file%s could not be written to the end (--verbose names "
                "each)",
                writer->lost_count - 1, writer->lost_count > 2 ? "s" : "");
    writer->is_ended = true;
    pthread_cond_signal(&writer->done);
    pthread_mutex_unlock(&writer->mutex);
    return NULL;
}
