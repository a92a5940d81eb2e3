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

static void prepare(void *context)
{
    struct job *job = context;
    const struct logdir_request *request = &job->request;
    const int end = request->first + request->count;

    if (!job->dir.is_open)
        job->rc = logdir_open(&job->dir, job->base, job->tmpdir, job->run_id,
                              &job->err);
    for (int i = request->first; i < end && job->rc == 0; i++)
        job->rc = logdir_enter(&job->dir, request->generation, request->restart_count,
                               i, &job->err);
    job->dir.made_first = request->first;
    job->dir.made_count = job->rc == 0 ? request->count : 0;
}

int logdir_aside_prepare(struct logdir *dir, const struct logdir_request *request,
                         struct ctrun_error *err)
{
    const char *name = request->base     ? request->base
                       : request->tmpdir ? request->tmpdir
                                         : "/tmp";
    struct job *job;
    int rc;

    if (dir->is_open && dir->generation == request->generation && dir->made_count > 0)
        return 0;
    if (!(job = create_job(dir, request)))
        return ct_fail(err, -ENOMEM, "log directory: out of memory");
    if (aside_call(prepare, free_job, job, WAIT_MS) < 0)
        return ct_fail(err, -ETIMEDOUT,
                       "log directory %.600s: no answer within %d s: its file system "
                       "hangs; choose another --log-dir, or /dev/null for none",
                       name, WAIT_MS / 1000);
    rc = job->rc;
    if (rc < 0 && err)
        *err = job->err;
    *dir = job->dir; /* also when only a part was made: it is there */
    free_job(job);
    return rc;
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
