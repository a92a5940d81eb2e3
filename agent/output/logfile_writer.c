/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the thread, as the loop sees it: started with the first file, watched while a file
 * waits for room, joined at the end, but with a time limit. */
#include <errno.h>
#include <sys/eventfd.h>

#include "agent/loop/limits.h"
#include "agent/output/logfile_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/thread.h"

/* One file at a time: a callback may close any file. */
static void call_them(struct logfile_writer *writer)
{
    /* on_room() is called without the mutex, because it pushes into a queue, which locks the
     * mutex. A file that is closed meanwhile removes itself from the list. */
    pthread_mutex_lock(&writer->mutex);
    while (!ct_list_is_empty(&writer->roomy)) {
        struct logfile *file = ct_list_entry(writer->roomy.next, struct logfile, roomy);

        ct_list_remove(&file->roomy);
        pthread_mutex_unlock(&writer->mutex);
        file->on_room(file->context);
        pthread_mutex_lock(&writer->mutex);
    }
    pthread_mutex_unlock(&writer->mutex);
}

static void on_wake(void *context, unsigned events)
{
    struct logfile_writer *writer = context;
    eventfd_t count;

    (void)events;
    (void)eventfd_read(writer->wake_fd, &count);
    call_them(writer);
}

void logfile_watch_stall(struct logfile_writer *writer)
{
    if (writer->is_stall_set)
        return;
    loop_timer_set(writer->stall, LOGFILE_STALL_MS);
    writer->is_stall_set = true;
    writer->seen_progress = atomic_load(&writer->progress);
}

/* With the mutex held. */
static bool has_waiting(struct logfile_writer *writer)
{
    ct_list_for_each(struct logfile_target, target, &writer->targets, node) {
        ct_list_for_each(struct logfile, file, &target->users, node)
            if (file->wants_room)
                return true;
    }
    return false;
}

static void report_stalled(const char *path)
{
    ct_event_emit("log_file_stalled", CT_STR("path", path));
    ct_warn("log file %s: nothing could be written for %d s: does its file system "
            "answer? Workers keep running; output that does not fit is dropped",
            path, LOGFILE_STALL_MS / 1000);
}

/* A file has waited for room for a while: tells a slow disk from one that does not answer. */
static void on_stall(void *context)
{
    struct logfile_writer *writer = context;
    const bool is_moving = atomic_load(&writer->progress) != writer->seen_progress;
    bool is_waited_for;
    char path[LOGFILE_PATH_SHOWN_BYTES] = "";

    writer->is_stall_set = false;
    pthread_mutex_lock(&writer->mutex);
    is_waited_for = has_waiting(writer);
    if (is_waited_for && !is_moving && writer->busy) {
        (void)ct_copy(path, sizeof path, writer->busy);
        writer->is_stalled = true;
        ct_list_for_each(struct logfile_target, target, &writer->targets, node)
            logfile_call_roomy(writer, target);
    }
    pthread_mutex_unlock(&writer->mutex);
    if (*path)
        report_stalled(path);
    else if (is_waited_for)
        logfile_watch_stall(writer);
}

int logfile_writer_create(struct logfile_writer **out, struct loop *loop)
{
    struct logfile_writer *writer = ct_zalloc(sizeof *writer);

    if (!writer)
        return -ENOMEM;
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_cond_init(&writer->work, NULL);
    ct_cond_init(&writer->done);
    ct_list_init(&writer->targets);
    ct_list_init(&writer->ready);
    ct_list_init(&writer->roomy);
    writer->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (writer->wake_fd >= 0)
        writer->wake = loop_watch_open(loop, writer->wake_fd, on_wake, writer);
    writer->stall = loop_timer_open(loop, on_stall, writer);
    if (!writer->wake || !writer->stall) {
        logfile_writer_destroy(writer);
        return -ENOMEM;
    }
    loop_watch_for(writer->wake, LOOP_READ);
    *out = writer;
    return 0;
}

int logfile_writer_set_full(struct logfile_writer *writer, bool is_full)
{
    int count;

    atomic_store(&writer->is_full, is_full);
    pthread_mutex_lock(&writer->mutex);
    count = ct_list_count(&writer->targets);
    pthread_mutex_unlock(&writer->mutex);
    return count;
}

/* True when the thread has written everything and is gone. */
static bool end_thread(struct logfile_writer *writer)
{
    uint64_t until_ms;
    bool is_ended;

    if (!writer->has_thread)
        return true;
    pthread_mutex_lock(&writer->mutex);
    until_ms = ct_deadline_ms(writer->is_stalled ? LOGFILE_STALLED_FLUSH_MS
                                                 : LOGFILE_FLUSH_MS);
    writer->is_ending = true;
    pthread_cond_signal(&writer->work);
    while (!writer->is_ended && ct_cond_wait(&writer->done, &writer->mutex, until_ms))
        ;
    is_ended = writer->is_ended;
    if (!is_ended && writer->busy)
        ct_warn("log file %s: its last output was not written: its file system does "
                "not answer",
                writer->busy);
    pthread_mutex_unlock(&writer->mutex);
    return is_ended;
}

/* A thread whose write() does not return still uses the writer and its targets: in that case
 * they are not freed. */
void logfile_writer_destroy(struct logfile_writer *writer)
{
    if (!writer)
        return;
    loop_timer_close(writer->stall);
    if (!end_thread(writer)) {
        pthread_detach(writer->thread); /* not freed: the thread still uses them */
        if (writer->wake)
            loop_watch_close(writer->wake);
        return;
    }
    if (writer->has_thread)
        pthread_join(writer->thread, NULL);
    loop_watch_close(writer->wake);
    pthread_cond_destroy(&writer->work);
    pthread_cond_destroy(&writer->done);
    pthread_mutex_destroy(&writer->mutex);
    free(writer);
}

int logfile_need_thread(struct logfile_writer *writer)
{
    int rc;

    if (writer->has_thread)
        return 0;
    rc = ct_thread_start(&writer->thread, logfile_write_ready, writer);
    writer->has_thread = rc == 0;
    return rc;
}
