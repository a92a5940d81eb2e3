/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/describe.h"

#include "agent/aside.h"
#include "launcher/json_error_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    WAIT_MS = 1000 /* the others of the job are stopped after it */
};

struct job {
    char path[sizeof((struct ct_failure *)0)->error_file];
    struct json_error_file file;
    bool is_good;
};

static void read_file(void *context)
{
    struct job *job = context;

    job->is_good = json_error_file_read(job->path, &job->file) == 1;
}

static void free_job(void *context)
{
    struct job *job = context;

    json_error_file_deinit(&job->file);
    free(job);
}

/* The end of a long traceback is what matters. */
static void take_text(struct ct_failure *failure, const struct json_error_file *file)
{
    const char *text = file->callstack && *file->callstack ? file->callstack
                                                           : file->message;
    const size_t length = strlen(text);

    if (length >= sizeof failure->text)
        text += length - sizeof failure->text + 1;
    (void)ct_copy(failure->text, sizeof failure->text, text);
}

void describe_failure(struct ct_failure *failure)
{
    struct job *job;
    bool is_good = false;

    if (!failure->error_file[0])
        return;
    if ((job = ct_zalloc(sizeof *job))) {
        (void)ct_copy(job->path, sizeof job->path, failure->error_file);
        if (aside_call(read_file, free_job, job, WAIT_MS) == 0) {
            if ((is_good = job->is_good))
                take_text(failure, &job->file);
            free_job(job);
        }
    }
    if (!is_good)
        failure->error_file[0] = '\0'; /* what the output says is better */
}
