/* SPDX-License-Identifier: Apache-2.0 */
/* The job belongs to two threads. The thread that comes second under the mutex frees it; results
 * that come after a cancel or the time limit are dropped. */
#include "agent/recorder/worker_look.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/recorder/json_recorder.h"
#include "agent/recorder/recorder_client.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"

enum {
    HUNG_MAX = 4 /* threads that hang while they read files of a worker */
};

struct job {
    pthread_mutex_t mutex;
    bool is_done;          /* the thread has ended */
    bool is_left;          /* the loop no longer waits */
    int wake;              /* eventfd; the loop has a copy */
    char folder[PATH_MAX]; /* of the recorders' sockets; empty: there are none */
    int count;
    size_t dump_bytes;
    struct worker_seen *list; /* under the mutex */
    struct worker_seen *own;  /* the thread's */
    pid_t reads; /* the worker whose files are read; 0: none; under the mutex */
    struct python_room room;
};

/* Threads whose look was left, and that have not returned: they ask recorders, so that no new look begins; or they read
 * files of these workers (0: a free place), which no new look reads. A file system that hangs would take one thread per
 * look, and there are HUNG_MAX at most. */
static atomic_int asking;
static _Atomic pid_t hung[HUNG_MAX];

struct worker_look {
    struct job *job;
    struct loop_watch *watch;
    struct loop_timer *timer;
    void (*done)(void *context, struct worker_seen *list, int count);
    void *context;
};

static void drop(struct worker_seen *seen)
{
    free(seen->dump);
    free(seen->calls);
}

static void destroy(struct job *job)
{
    for (int i = 0; i < job->count; i++)
        drop(&job->list[i]);
    free(job->list);
    free(job->own);
    ct_close(&job->wake);
    pthread_mutex_destroy(&job->mutex);
    free(job);
}

/* ---- On the thread ----------------------------------------------------------------------- */

static void take_dump(struct job *job, struct worker_seen *seen,
                      const struct ct_buf *text)
{
    const size_t length = ct_buf_length(text);

    char *dump = length <= RECORDER_DUMPS_MAX_BYTES - job->dump_bytes
                     ? ct_zalloc(length + 1)
                     : NULL;

    if (!dump)
        return;
    memcpy(dump, ct_buf_data(text), length);
    job->dump_bytes += length;
    free(seen->dump);
    seen->dump = dump;
}

/* Appends to the calls of another recorder. */
static void take_calls(struct worker_seen *seen, const char *kind,
                       const struct ct_buf *text)
{
    struct straggler_call *calls = NULL, *all;
    const int count = json_recorder_read_calls(
        &calls, kind, (const char *)ct_buf_data(text), ct_buf_length(text));

    if (count > 0) {
        all = ct_realloc_array(seen->calls, (size_t)(seen->call_count + count),
                               sizeof *all);
        if (all) {
            memcpy(all + seen->call_count, calls, (size_t)count * sizeof *all);
            seen->calls = all;
            seen->call_count += count;
        }
    }
    free(calls);
    if (count >= 0)
        seen->has_recorder = seen->is_seen = true;
}

/* The dump of the recorder in which the process waits is kept. */
static void take_view(struct job *job, struct worker_seen *seen, const char *kind,
                      const struct ct_buf *text)
{
    struct recorder_view *view = ct_zalloc(sizeof *view);
    const int rc = !view
                       ? -ENOMEM
                       : json_recorder_read(view, kind, (const char *)ct_buf_data(text),
                                            ct_buf_length(text));

    if (rc == 0) {
        if (!seen->dump || (*view->oldest.op && !*seen->view.oldest.op))
            take_dump(job, seen, text);
        recorder_view_add(&seen->view, view);
        seen->has_recorder = seen->is_seen = true;
    }
    free(view);
}

struct batch {
    struct job *job;
    struct worker_seen *own;
    uint64_t asked_ms;
};

static void on_answer(void *context, int place, const struct ct_buf *text)
{
    const struct batch *batch = context;
    struct worker_seen *seen = &batch->own[place / RECORDER_KINDS];
    const char *kind = recorder_kinds[place % RECORDER_KINDS].name;

    if (seen->took_ms == 0)
        seen->took_ms = ct_now_ms() - batch->asked_ms + 1;
    if (seen->wants_calls)
        take_calls(seen, kind, text);
    else
        take_view(batch->job, seen, kind, text);
}

/* A recorder takes 60 ms to write its answer: all of a batch do so at the same time. */
static void ask_batch(struct job *job, struct worker_seen *own, int count,
                      uint64_t deadline_ms)
{
    struct batch batch = {.job = job, .own = own, .asked_ms = ct_now_ms()};
    int fds[RECORDER_KINDS * RECORDER_BATCH];

    for (int i = 0; i < RECORDER_KINDS * count; i++) {
        const struct worker_seen *seen = &own[i / RECORDER_KINDS];
        const struct recorder_kind *kind = &recorder_kinds[i % RECORDER_KINDS];

        fds[i] = seen->is_stopped
                     ? -EAGAIN
                     : recorder_ask_worker(job->folder, seen->pid,
                                           seen->wants_calls ? kind->for_calls
                                                             : kind->handler);
    }
    recorder_take_all(fds, RECORDER_KINDS * count, deadline_ms, on_answer, &batch);
}

/* Reads files of the worker: may never return. */
static void find_place(struct job *job, struct worker_seen *seen)
{
    live_stack_find_place(&seen->place, seen->pid, &job->room);
    seen->is_seen = true;
}

/* False if the loop has left. */
static bool publish(struct job *job, int i, const struct worker_seen *seen)
{
    bool is_left;

    pthread_mutex_lock(&job->mutex);
    is_left = job->is_left;
    if (!is_left)
        job->list[i] = *seen;
    pthread_mutex_unlock(&job->mutex);
    return !is_left;
}

/* True if no earlier thread reads files of this worker, and another one may hang. */
static bool may_read(pid_t pid)
{
    bool has_room = false;

    for (int i = 0; i < HUNG_MAX; i++) {
        const pid_t other = atomic_load(&hung[i]);

        if (other == pid)
            return false;
        has_room |= other == 0;
    }
    return has_room;
}

/* False if the loop has left. */
static bool begin_to_read(struct job *job, pid_t pid)
{
    bool is_left;

    pthread_mutex_lock(&job->mutex);
    is_left = job->is_left;
    if (!is_left)
        job->reads = pid;
    pthread_mutex_unlock(&job->mutex);
    return !is_left;
}

/* Only the loop's thread takes places. */
static void note_hung(pid_t pid)
{
    for (int i = 0; i < HUNG_MAX; i++)
        if (atomic_load(&hung[i]) == 0) {
            atomic_store(&hung[i], pid);
            return;
        }
}

static void forget_hung(pid_t pid)
{
    for (int i = 0; i < HUNG_MAX; i++)
        if (atomic_load(&hung[i]) == pid)
            atomic_store(&hung[i], 0);
}

static void look_at_all(struct job *job, struct worker_seen *own)
{
    const uint64_t deadline_ms = ct_now_ms() + RECORDER_TAKE_MS;
    bool goes_on = true;

    for (int first = 0; first < job->count && goes_on; first += RECORDER_BATCH) {
        const int left = job->count - first;
        const int count = left < RECORDER_BATCH ? left : RECORDER_BATCH;

        ask_batch(job, own + first, count, deadline_ms);
        for (int i = first; i < first + count; i++)
            if (!(goes_on = publish(job, i, &own[i])))
                drop(&own[i]);
    }
    for (int i = 0; i < job->count && goes_on; i++) {
        if (own[i].wants_calls || !may_read(own[i].pid))
            continue;
        if ((goes_on = begin_to_read(job, own[i].pid))) {
            find_place(job, &own[i]);
            goes_on = publish(job, i, &own[i]);
        }
    }
}

static void *run(void *context)
{
    static const uint64_t one = 1;
    struct job *job = context;
    pid_t reads;
    bool is_left;

    look_at_all(job, job->own);
    pthread_mutex_lock(&job->mutex);
    job->is_done = true;
    is_left = job->is_left;
    reads = job->reads;
    if (!is_left && write(job->wake, &one, sizeof one) < 0) {
        /* the deadline wakes the loop */
    }
    pthread_mutex_unlock(&job->mutex);
    if (is_left) {
        destroy(job);
        if (reads)
            forget_hung(reads);
        else
            atomic_fetch_sub(&asking, 1);
    }
    return NULL;
}

/* ---- On the loop ------------------------------------------------------------------------- */

/* From here on the thread owns the job, if it still runs; `list` (NULL: not wanted) gets the
 * results so far, with the dumps. */
static void part(struct job *job, struct worker_seen *list)
{
    bool is_done;

    pthread_mutex_lock(&job->mutex);
    for (int i = 0; list && i < job->count; i++) {
        list[i] = job->list[i];
        job->list[i].dump = NULL;
        job->list[i].calls = NULL;
    }
    job->is_left = true;
    is_done = job->is_done;
    if (!is_done && job->reads)
        note_hung(job->reads);
    else if (!is_done)
        atomic_fetch_add(&asking, 1);
    pthread_mutex_unlock(&job->mutex);
    if (is_done)
        destroy(job);
}

static void close_look(struct worker_look *look)
{
    if (!look)
        return;
    loop_watch_close(look->watch);
    loop_timer_close(look->timer);
    free(look);
}

static void end(struct worker_look *look)
{
    const int count = look->job->count;
    struct worker_seen *list = ct_zalloc_array((size_t)count, sizeof *list);
    void (*done)(void *, struct worker_seen *, int) = look->done;
    void *context = look->context;

    part(look->job, list);
    close_look(look);
    done(context, list, list ? count : 0);
    for (int i = 0; list && i < count; i++)
        drop(&list[i]);
    free(list);
}

static void on_wake(void *context, unsigned events)
{
    (void)events;
    end(context);
}

static void on_time(void *context)
{
    end(context);
}

static struct job *make_job(const struct recorder_folder *folder,
                            struct worker_seen *list, int count)
{
    struct job *job = ct_zalloc(sizeof *job);

    if (!job) {
        free(list);
        return NULL;
    }
    pthread_mutex_init(&job->mutex, NULL);
    job->list = list;
    job->count = count;
    recorder_folder_sockets(folder, job->folder);
    job->wake = eventfd(0, EFD_CLOEXEC);
    job->own = ct_zalloc_array((size_t)count, sizeof *job->own);
    if (job->own)
        memcpy(job->own, list, (size_t)count * sizeof *list);
    return job;
}

struct worker_look *
worker_look_start(struct loop *loop, const struct recorder_folder *folder,
                  struct worker_seen *list, int count,
                  void (*done)(void *context, struct worker_seen *list, int count),
                  void *context)
{
    struct worker_look *look = ct_zalloc(sizeof *look);
    struct job *job = make_job(folder, list, count);
    int fd;

    if (!look || !job || !job->own || atomic_load(&asking) > 0)
        goto fail;
    *look = (struct worker_look){.job = job, .done = done, .context = context};
    if (job->wake < 0 || (fd = dup(job->wake)) < 0 ||
        !(look->watch = loop_watch_open(loop, fd, on_wake, look)) ||
        !(look->timer = loop_timer_open(loop, on_time, look)) ||
        blocking_call_start(run, job) < 0)
        goto fail;
    loop_watch_for(look->watch, LOOP_READ);
    loop_timer_set(look->timer, WORKER_LOOK_ALL_MS);
    return look;
fail:
    close_look(look);
    if (job)
        destroy(job);
    return NULL;
}

void worker_look_cancel(struct worker_look *look)
{
    if (look)
        part(look->job, NULL);
    close_look(look);
}
