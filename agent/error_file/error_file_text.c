/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/error_file/error_file_text.h"

#include "agent/loop/blocking_call.h"
#include "agent/postmortem/traceback.h"
#include "agent/error_file/redact.h"
#include "agent/error_file/json_error_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    WAIT_MS = 1000 /* the other workers of the job are stopped only after this */
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

/* The end of a long traceback is kept, because it matters most. Secrets are removed before the
 * cut: half of a secret is not recognized by its shape. */
static void take_text(struct ct_failure *failure, const struct json_error_file *file,
                      bool redacts)
{
    char *text = file->callstack && *file->callstack ? file->callstack : file->message;
    size_t length;

    if (redacts) {
        (void)redact(file->callstack);
        (void)redact(file->message);
    }
    length = strlen(text);
    failure->error = file->error;
    traceback_explain(failure, text, file->message);
    if (length >= sizeof failure->text)
        text += length - sizeof failure->text + 1;
    (void)ct_copy(failure->text, sizeof failure->text, text);
}

void error_file_text_redact(struct ct_failure *failure)
{
    (void)redact(failure->text);
    (void)redact(failure->exception);
    for (int i = 0; i < failure->facts.count; i++)
        (void)redact(failure->facts.text + failure->facts.list[i].at);
}

void error_file_text_add(struct ct_failure *failure, bool redacts)
{
    struct job *job;
    bool is_good = false;

    if ((job = ct_zalloc(sizeof *job))) {
        (void)ct_copy(job->path, sizeof job->path, failure->error_file);
        if (blocking_call(read_file, free_job, job, WAIT_MS) == 0) {
            if ((is_good = job->is_good))
                take_text(failure, &job->file, redacts);
            free_job(job);
        }
    }
    if (!is_good)
        failure->error_file[0] = '\0'; /* the output has a better one */
}
