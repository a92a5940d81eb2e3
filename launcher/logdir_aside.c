/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/logdir_aside.h"

#include <errno.h>

#include "agent/aside.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    WAIT_MS = 2000 /* well below the time after which a silent node is lost */
};

struct job {
    struct logdir dir; /* a copy: the owner's may be gone when this comes back */
    struct logdir_request request;
    char *base;
    char *tmpdir;
    char *run_id;
    const char *name; /* of a file to write */
    void *data;
    size_t length;
    struct ctrun_error err;
    int rc;
    bool has_files;
};

static void free_job(void *context)
{
    struct job *job = context;

    free(job->base);
    free(job->tmpdir);
    free(job->run_id);
    free(job->data);
    free(job);
}

static struct job *create_job(const struct logdir *dir,
                              const struct logdir_request *request)
{
    struct job *job = ct_zalloc(sizeof *job);

    if (!job)
        return NULL;
    job->dir = *dir;
    if (!request)
        return job;
    job->request = *request;
    if ((request->base && !(job->base = ct_strdup(request->base))) ||
        (request->tmpdir && !(job->tmpdir = ct_strdup(request->tmpdir))) ||
        !(job->run_id = ct_strdup(request->run_id))) {
        free_job(job);
        return NULL;
    }
    return job;
}

static void open_dir(struct job *job)
{
    if (!job->dir.is_open)
        job->rc = logdir_open(&job->dir, job->base, job->tmpdir, job->run_id,
                              &job->err);
}

static void prepare(void *context)
{
    struct job *job = context;
    const struct logdir_request *request = &job->request;
    const int end = request->first + request->count;

    open_dir(job);
    for (int i = request->first; i < end && job->rc == 0; i++)
        job->rc = logdir_enter(&job->dir, request->generation, request->restart_count,
                               i, &job->err);
    job->dir.made_first = request->first;
    job->dir.made_count = job->rc == 0 ? request->count : 0;
}

/* Takes the job; what it did to the directory is kept, also when only a part of it was done. */
static int call(void (*fn)(void *job), struct job *job, struct logdir *dir,
                struct ctrun_error *err)
{
    char base[512]; /* the job may be gone afterwards */
    int rc;

    (void)ct_copy(base, sizeof base,
                  dir->is_open  ? dir->base
                  : job->base   ? job->base
                  : job->tmpdir ? job->tmpdir
                                : "/tmp");
    if (aside_call(fn, free_job, job, WAIT_MS) < 0)
        return ct_fail(err, -ETIMEDOUT,
                       "log directory %s: no answer within %d s: its file system "
                       "hangs; choose another --log-dir, or /dev/null for none",
                       base, WAIT_MS / 1000);
    rc = job->rc;
    if (rc < 0 && err)
        *err = job->err;
    *dir = job->dir;
    free_job(job);
    return rc;
}

int logdir_aside_prepare(struct logdir *dir, const struct logdir_request *request,
                         struct ctrun_error *err)
{
    struct job *job;

    if (dir->is_open && dir->generation == request->generation && dir->made_count > 0)
        return 0;
    if (!(job = create_job(dir, request)))
        return ct_fail(err, -ENOMEM, "log directory: out of memory");
    return call(prepare, job, dir, err);
}

static void write_file(void *context)
{
    struct job *job = context;

    open_dir(job);
    if (job->rc == 0)
        job->rc = logdir_write(&job->dir, job->name, job->data, job->length, &job->err);
}

int logdir_aside_write(struct logdir *dir, const struct logdir_request *request,
                       const char *name, void *data, size_t length,
                       struct ctrun_error *err)
{
    struct job *job = create_job(dir, request);

    if (!job) {
        free(data);
        return ct_fail(err, -ENOMEM, "%s: out of memory", name);
    }
    job->name = name;
    job->data = data;
    job->length = length;
    return call(write_file, job, dir, err);
}

static void look(void *context)
{
    struct job *job = context;

    job->has_files = logdir_has_files(&job->dir);
}

bool logdir_aside_has_files(const struct logdir *dir)
{
    struct job *job = dir->is_open ? create_job(dir, NULL) : NULL;
    bool has_files;

    if (!job || aside_call(look, free_job, job, WAIT_MS) < 0)
        return false;
    has_files = job->has_files;
    free_job(job);
    return has_files;
}

static void close_dir(void *context)
{
    struct job *job = context;

    logdir_close(&job->dir);
}

void logdir_aside_close(struct logdir *dir)
{
    struct job *job = dir->is_open && dir->is_temporary ? create_job(dir, NULL) : NULL;

    dir->is_open = false;
    if (job && aside_call(close_dir, free_job, job, WAIT_MS) == 0)
        free_job(job);
}
