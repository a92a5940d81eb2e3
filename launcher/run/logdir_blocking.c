/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/logdir_blocking.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "agent/loop/blocking_call.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    WAIT_MS = 2000 /* well below the time after which a silent node is lost */
};

/* ---- Folders of a round ------------------------------------------------------------------ */

/* Shared by two threads: the owner and make_folders(). request, base, tmpdir and run_id are set
 * before the thread starts and never changed; the results are written under the mutex. */
struct logdir_job {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int users;         /* the owner and the thread; the last one frees it */
    struct logdir dir; /* complete once made > 0 */
    struct logdir_request request;
    char *base; /* copies of the request's strings */
    char *tmpdir;
    char *run_id;
    int made; /* folders made, in the order of local ranks */
    bool is_done;
    bool is_given_up; /* a wait timed out: later waits fail at once */
    int rc;
    struct ctrun_error err;
};

static void free_job(struct logdir_job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->mutex);
    free(job->base);
    free(job->tmpdir);
    free(job->run_id);
    free(job);
}

static void leave(struct logdir_job *job)
{
    bool is_last;

    pthread_mutex_lock(&job->mutex);
    is_last = --job->users == 0;
    pthread_mutex_unlock(&job->mutex);
    if (is_last)
        free_job(job);
}

static struct logdir_job *create_job(const struct logdir *dir,
                                     const struct logdir_request *request)
{
    struct logdir_job *job = ct_zalloc(sizeof *job);

    if (!job)
        return NULL;
    pthread_mutex_init(&job->mutex, NULL);
    ct_cond_init(&job->changed);
    job->users = 2;
    job->dir = *dir;
    job->request = *request;
    if ((request->base && !(job->base = ct_strdup(request->base))) ||
        (request->tmpdir && !(job->tmpdir = ct_strdup(request->tmpdir))) ||
        !(job->run_id = ct_strdup(request->run_id))) {
        free_job(job);
        return NULL;
    }
    return job;
}

static void publish(struct logdir_job *job, const struct logdir *dir, int made, int rc)
{
    pthread_mutex_lock(&job->mutex);
    /* job->dir is complete with the first folder; later folders change only counts, which the
     * owner takes from the request. So take_dir() may read job->dir while the thread continues. */
    if (made <= 1)
        job->dir = *dir;
    job->made = made;
    job->rc = rc;
    job->is_done = rc < 0 || made == job->request.count;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->mutex);
}

/* Runs on a thread that a hung file system may block forever. So the thread works on copies and
 * holds its own reference to the job. It publishes each folder as soon as the folder is made, so
 * that the first workers start while the other folders are made. */
static void *make_folders(void *context)
{
    struct logdir_job *job = context;
    const struct logdir_request *request = &job->request;
    struct logdir dir = job->dir;
    int rc = 0;

    if (dir.is_open && logdir_is_gone(&dir)) {
        ct_warn("the log directory %s was removed: another one is made", dir.run);
        if (dir.is_temporary)
            (void)rmdir(dir.base);
        dir.is_open = false;
    }
    if (!dir.is_open)
        rc = logdir_open(&dir, job->base, job->tmpdir, job->run_id, &job->err);
    if (rc < 0)
        publish(job, &dir, 0, rc);
    for (int i = 0; i < request->count && rc == 0; i++) {
        rc = logdir_enter(&dir, request->generation, request->restart_count,
                          request->first + i, &job->err);
        publish(job, &dir, rc == 0 ? i + 1 : i, rc);
    }
    leave(job);
    return NULL;
}

static void drop_job(struct logdir_blocking *blocking)
{
    if (blocking->job)
        leave(blocking->job);
    blocking->job = NULL;
}

/* Waits until `count` folders are made or the thread has ended. 0, -ETIMEDOUT, or its error. */
static int wait_for(struct logdir_job *job, int count)
{
    const uint64_t until_ms = ct_deadline_ms(WAIT_MS);
    int rc = 0;

    pthread_mutex_lock(&job->mutex);
    if (job->is_given_up)
        rc = -ETIMEDOUT;
    while (job->made < count && !job->is_done && rc == 0)
        rc = ct_cond_wait(&job->changed, &job->mutex, until_ms) ? 0 : -ETIMEDOUT;
    if (job->made >= count)
        rc = 0;
    else if (job->is_done)
        rc = job->rc;
    else
        job->is_given_up = true;
    pthread_mutex_unlock(&job->mutex);
    return rc;
}

/* Takes over the directory that the thread has opened and will not change any more. */
static void take_dir(struct logdir_blocking *blocking)
{
    const struct logdir_job *job = blocking->job;

    blocking->dir = job->dir;
    blocking->dir.made_first = job->request.first;
    blocking->dir.made_count = job->request.count;
}

/* Waits for all folders of the job, and takes the job's directory if there was none before.
 * -ETIMEDOUT: the job is not done. */
static int settle(struct logdir_blocking *blocking)
{
    struct logdir_job *job = blocking->job;
    const int rc = job ? wait_for(job, job->request.count) : 0;

    if (job && rc == 0 && !blocking->dir.is_open)
        take_dir(blocking);
    return rc;
}

void logdir_blocking_begin(struct logdir_blocking *blocking,
                           const struct logdir_request *request)
{
    if (blocking->job && blocking->job->request.generation == request->generation)
        return;
    if (!blocking->dir.is_open) /* nothing has waited for the folder of the run */
        (void)settle(blocking);
    drop_job(blocking);
    blocking->job = create_job(&blocking->dir, request);
    if (blocking->job && blocking_call_start(make_folders, blocking->job) < 0)
        (void)make_folders(blocking->job); /* no thread: may block */
}

int logdir_blocking_wait(struct logdir_blocking *blocking, int local_rank,
                         struct ctrun_error *err)
{
    struct logdir_job *job = blocking->job;
    const char *name;
    int rc;

    if (!job)
        return ct_fail(err, -ENOMEM, "log directory: out of memory");
    rc = wait_for(job, local_rank - job->request.first + 1);
    if (rc == 0) {
        if (blocking->dir.generation != job->request.generation)
            take_dir(blocking);
        return 0;
    }
    if (rc == -ETIMEDOUT) {
        name = job->base ? job->base : job->tmpdir ? job->tmpdir : "/tmp";
        return ct_fail(err, rc,
                       "log directory %.600s: its file system has not answered within "
                       "%d s; choose another --log-dir, or /dev/null for none",
                       name, WAIT_MS / 1000);
    }
    if (err)
        *err = job->err; /* no race: the thread is done */
    return rc;
}

/* ---- The end ----------------------------------------------------------------------------- */

struct errand {
    struct logdir dir; /* a copy: the owner may be gone when the call returns */
    char *base;
    char *run_id;
    const char *name; /* of the file to write */
    void *data;
    size_t length;
    int rc;
    struct ctrun_error err;
    bool has_files;
};

static void free_errand(void *context)
{
    struct errand *errand = context;

    free(errand->base);
    free(errand->run_id);
    free(errand->data);
    free(errand);
}

static struct errand *create_errand(const struct logdir *dir)
{
    struct errand *errand = ct_zalloc(sizeof *errand);

    if (errand)
        errand->dir = *dir;
    return errand;
}

static void write_file(void *context)
{
    struct errand *errand = context;

    if (!errand->dir.is_open)
        errand->rc = logdir_open(&errand->dir, errand->base, NULL, errand->run_id,
                                 &errand->err);
    if (errand->rc == 0)
        errand->rc = logdir_write(&errand->dir, errand->name, errand->data,
                                  errand->length, &errand->err);
}

/* This call frees the errand if the thread has ended in time; else the thread frees it through
 * free_errand(). */
static int write_blocking(struct logdir_blocking *blocking, struct errand *errand,
                          struct ctrun_error *err)
{
    int rc = settle(blocking);

    if (rc == -ETIMEDOUT)
        free_errand(errand);
    else if (blocking->dir.is_open) /* settle() may have set it */
        errand->dir = blocking->dir;
    if (rc != -ETIMEDOUT)
        rc = blocking_call(write_file, free_errand, errand, WAIT_MS);
    if (rc == -ETIMEDOUT)
        return ct_fail(err, rc,
                       "the file system of the log directory has not answered within "
                       "%d s",
                       WAIT_MS / 1000);
    blocking->dir = errand->dir;
    rc = errand->rc;
    if (rc < 0 && err)
        *err = errand->err;
    free_errand(errand);
    return rc;
}

int logdir_blocking_write(struct logdir_blocking *blocking,
                          const struct logdir_request *request, const char *name,
                          void *data, size_t length, struct ctrun_error *err)
{
    struct errand *errand = create_errand(&blocking->dir);

    if (!errand) {
        free(data);
        return ct_fail(err, -ENOMEM, "%s: out of memory", name);
    }
    errand->name = name;
    errand->data = data;
    errand->length = length;
    if ((request->base && !(errand->base = ct_strdup(request->base))) ||
        !(errand->run_id = ct_strdup(request->run_id))) {
        free_errand(errand);
        return ct_fail(err, -ENOMEM, "%s: out of memory", name);
    }
    return write_blocking(blocking, errand, err);
}

static void tidy_dir(void *context)
{
    struct errand *errand = context;

    errand->has_files = logdir_tidy(&errand->dir);
}

/* What cannot be tidied in time is left as it is: an empty folder does no harm. */
void logdir_blocking_tidy(struct logdir_blocking *blocking)
{
    struct errand *errand = blocking->dir.is_open ? create_errand(&blocking->dir)
                                                  : NULL;

    if (!errand || blocking_call(tidy_dir, free_errand, errand, WAIT_MS) < 0)
        return;
    blocking->has_files = errand->has_files;
    blocking->dir.is_open = errand->dir.is_open;
    if (!blocking->dir.is_open)
        drop_job(blocking); /* its folders are gone */
    free_errand(errand);
}

static void close_dir(void *context)
{
    struct errand *errand = context;

    logdir_close(&errand->dir);
}

void logdir_blocking_close(struct logdir_blocking *blocking)
{
    struct errand *errand = NULL;

    (void)settle(blocking); /* to remove unused folders, too */
    drop_job(blocking);
    if (blocking->dir.is_open && blocking->dir.is_temporary)
        errand = create_errand(&blocking->dir);
    blocking->dir.is_open = false;
    if (errand && blocking_call(close_dir, free_errand, errand, WAIT_MS) == 0)
        free_errand(errand);
}
