/* SPDX-License-Identifier: Apache-2.0 */
/* One mutex for all queues. The thread takes a whole queue by swapping buffers and writes with
 * the mutex released, so that the loop never waits for more than a swap. A target that has
 * something to do stands in the list `ready`; one thread serves it at a time, in turn. */
#include "agent/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/logrotate.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

/* A file on disk. */
struct target {
    struct ct_list node; /* of the writer's targets */
    struct ct_list
        ready; /* of the writer's ready list while there is something to do */
    struct ct_list users; /* struct logfile; none left: close it once all is written */
    char *path;
    int keep;
    bool is_broken;    /* given up: what is pushed goes nowhere */
    uint64_t left_out; /* bytes since the file system stopped to answer */
    struct ct_buf queue;
    struct ct_buf taken; /* from here on the thread's own */
    struct logrotate cap;
    int fd;
};

struct logfile {
    struct ct_list node;
    struct ct_list roomy; /* of the writer's list of those that must be called */
    struct logfile_writer *writer;
    struct target *target;
    bool wants_room;
    void (*on_room)(void *context);
    void *context;
};

struct logfile_writer {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread */
    pthread_cond_t done; /* for logfile_writer_destroy() */
    pthread_t thread;
    bool has_thread;
    bool is_ending; /* the thread ends when nothing is ready */
    bool is_ended;
    bool is_stalled;
    bool has_told; /* of a file that was given up: one line, not one a file */
    struct ct_list targets;
    struct ct_list ready;
    struct ct_list roomy;
    const char *busy;              /* the path that the thread is at; NULL: none */
    atomic_uint_fast64_t progress; /* writes that came back */

    struct loop_watch *wake; /* eventfd: somebody is roomy */
    int wake_fd;
    struct loop_timer *stall; /* runs while somebody wants room */
    bool is_stall_set;
    uint64_t seen_progress; /* when it was set */
};

/* ---- The thread ------------------------------------------------------------------------- */

static int open_target(struct target *target)
{
    target->fd = open(target->path,
                      O_WRONLY | O_CREAT | O_APPEND | O_TRUNC | O_CLOEXEC | O_NOCTTY,
                      0666);
    target->cap.size = 0;
    target->cap.is_in_line = false;
    return target->fd >= 0 ? 0 : -errno;
}

static int write_all(struct logfile_writer *writer, struct target *target,
                     const char *data, size_t length)
{
    while (length > 0) {
        const size_t part = length < LOGFILE_WRITE_BYTES ? length : LOGFILE_WRITE_BYTES;
        const ssize_t n = write(target->fd, data, part);

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

static int rotate(struct target *target)
{
    const int rc = logrotate_shift(target->path, target->keep);

    close(target->fd);
    target->fd = -1;
    return rc < 0 ? rc : open_target(target);
}

/* Everything that was taken. 0 or a negative errno. */
static int write_taken(struct logfile_writer *writer, struct target *target)
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

static void tell_broken(struct logfile_writer *writer, const char *path, int rc)
{
    struct ct_event event;

    ct_event_begin(&event, "log_file_lost");
    ct_event_str(&event, "path", path);
    ct_event_str(&event, "why", strerror(-rc));
    ct_event_end(&event);
    if (writer->has_told)
        ct_info("log file %s: %s", path, strerror(-rc));
    else
        ct_warn("log file %s: %s; the workers go on, and nothing more is written to it",
                path, strerror(-rc));
    writer->has_told = true; /* the thread's own */
}

static void call_roomy(struct logfile_writer *writer, struct target *target)
{
    struct ct_list *node;
    bool is_any = false;

    ct_list_for_each(node, &target->users) {
        struct logfile *file = ct_list_entry(node, struct logfile, node);

        if (!file->wants_room)
            continue;
        file->wants_room = false;
        ct_list_remove(&file->roomy);
        ct_list_add(&writer->roomy, &file->roomy);
        is_any = true;
    }
    if (is_any)
        (void)eventfd_write(writer->wake_fd, 1); /* full: it is on its way */
}

static void destroy_target(struct target *target)
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

/* With the mutex held, which is released meanwhile. */
static void serve(struct logfile_writer *writer, struct target *target)
{
    const struct ct_buf queue = target->queue;
    int rc = 0;

    ct_list_remove(&target->ready);
    target->queue = target->taken;
    target->taken = queue;
    if (!target->is_broken) {
        writer->busy = target->path;
        pthread_mutex_unlock(&writer->mutex);
        rc = write_taken(writer, target);
        if (rc < 0)
            tell_broken(writer, target->path, rc);
        pthread_mutex_lock(&writer->mutex);
        writer->busy = NULL;
    }
    target->is_broken |= rc < 0;
    writer->is_stalled = false;
    call_roomy(writer, target);
    if (ct_list_is_empty(&target->users) && ct_buf_length(&target->queue) == 0)
        destroy_target(target);
}

static void *run_thread(void *context)
{
    struct logfile_writer *writer = context;

    pthread_mutex_lock(&writer->mutex);
    for (;;) {
        if (!ct_list_is_empty(&writer->ready))
            serve(writer, ct_list_entry(writer->ready.next, struct target, ready));
        else if (writer->is_ending)
            break;
        else
            pthread_cond_wait(&writer->work, &writer->mutex);
    }
    writer->is_ended = true;
    pthread_cond_signal(&writer->done);
    pthread_mutex_unlock(&writer->mutex);
    return NULL;
}

/* ---- The loop --------------------------------------------------------------------------- */

/* One at a time: a callback may close any of them. */
static void call_them(struct logfile_writer *writer)
{
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

static void set_stall(struct logfile_writer *writer)
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
    struct ct_list *at;
    struct ct_list *user;

    ct_list_for_each(at, &writer->targets) {
        struct target *target = ct_list_entry(at, struct target, node);

        ct_list_for_each(user, &target->users)
            if (ct_list_entry(user, struct logfile, node)->wants_room)
                return true;
    }
    return false;
}

static void tell_stalled(const char *path)
{
    struct ct_event event;

    ct_event_begin(&event, "log_file_stalled");
    ct_event_str(&event, "path", path);
    ct_event_end(&event);
    ct_warn(
        "log file %s: nothing could be written for %d s: does its file system answer? "
        "The workers go on; what does not fit is left out",
        path, LOGFILE_STALL_MS / 1000);
}

/* Somebody has wanted room for a while: is the disk slow, or does it not answer? */
static void on_stall(void *context)
{
    struct logfile_writer *writer = context;
    const bool is_moving = atomic_load(&writer->progress) != writer->seen_progress;
    bool is_waited_for;
    char path[LOGFILE_PATH_TOLD_BYTES] = "";
    struct ct_list *node;

    writer->is_stall_set = false;
    pthread_mutex_lock(&writer->mutex);
    is_waited_for = has_waiting(writer);
    if (is_waited_for && !is_moving && writer->busy) {
        (void)ct_copy(path, sizeof path, writer->busy);
        writer->is_stalled = true;
        ct_list_for_each(node, &writer->targets)
            call_roomy(writer, ct_list_entry(node, struct target, node));
    }
    pthread_mutex_unlock(&writer->mutex);
    if (*path)
        tell_stalled(path);
    else if (is_waited_for)
        set_stall(writer);
}

int logfile_writer_create(struct logfile_writer **out, struct loop *loop)
{
    struct logfile_writer *writer = ct_zalloc(sizeof *writer);
    pthread_condattr_t monotonic;

    if (!writer)
        return -ENOMEM;
    pthread_mutex_init(&writer->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&writer->work, NULL);
    pthread_cond_init(&writer->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
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

/* True when the thread has written everything and is gone. */
static bool end_thread(struct logfile_writer *writer)
{
    const uint64_t left_ms = writer->is_stalled ? LOGFILE_STALLED_FLUSH_MS
                                                : LOGFILE_FLUSH_MS;
    struct timespec until;
    bool is_ended;

    if (!writer->has_thread)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(left_ms / 1000);
    until.tv_nsec += (long)(left_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&writer->mutex);
    writer->is_ending = true;
    pthread_cond_signal(&writer->work);
    while (!writer->is_ended &&
           pthread_cond_timedwait(&writer->done, &writer->mutex, &until) == 0)
        ;
    is_ended = writer->is_ended;
    if (!is_ended && writer->busy)
        ct_warn("log file %s: its end is not written: its file system does not answer",
                writer->busy);
    pthread_mutex_unlock(&writer->mutex);
    return is_ended;
}

void logfile_writer_destroy(struct logfile_writer *writer)
{
    if (!writer)
        return;
    loop_timer_close(writer->stall);
    if (!end_thread(writer)) {
        pthread_detach(writer->thread); /* and what it uses is left to the end */
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

static int need_thread(struct logfile_writer *writer)
{
    sigset_t all;
    sigset_t before;
    int rc;

    if (writer->has_thread)
        return 0;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the loop's */
    rc = pthread_create(&writer->thread, NULL, run_thread, writer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    writer->has_thread = rc == 0;
    return -rc;
}

/* ---- Files ------------------------------------------------------------------------------ */

static struct target *find_target(struct logfile_writer *writer, const char *path)
{
    struct ct_list *node;

    ct_list_for_each(node, &writer->targets) {
        struct target *target = ct_list_entry(node, struct target, node);

        if (strcmp(target->path, path) == 0)
            return target;
    }
    return NULL;
}

static struct target *create_target(const struct logfile_options *options)
{
    struct target *target = ct_zalloc(sizeof *target);

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
    target->cap.max_bytes = options->max_bytes;
    return target;
}

/* With the mutex held. */
static void make_ready(struct logfile_writer *writer, struct target *target)
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
    struct target *target = NULL;
    int rc = need_thread(writer);

    if (rc == 0 && file) {
        pthread_mutex_lock(&writer->mutex);
        target = find_target(writer, options->path);
        if (!target && (target = create_target(options)))
            ct_list_add(&writer->targets, &target->node);
        if (target) {
            ct_list_add(&target->users, &file->node);
            make_ready(writer, target); /* it is there, even if nothing is written */
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

/* What the file system's silence has cost stands where it is missing. */
static void append_note(struct target *target)
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
static bool is_over_mark(const struct target *target)
{
    return ct_buf_length(&target->queue) >= LOGFILE_HIGH_BYTES;
}

void logfile_push(struct logfile *file, const void *data, size_t length)
{
    struct logfile_writer *writer = file->writer;
    struct target *target = file->target;

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
        set_stall(writer);
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
    make_ready(file->writer, file->target); /* the last one closes it */
    pthread_mutex_unlock(&file->writer->mutex);
    free(file);
}
