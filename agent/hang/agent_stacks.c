/* SPDX-License-Identifier: Apache-2.0 */
/* Where workers of this node are, for ctrunctl stacks and for a hang. Read on a thread of its own, for
 * the file systems of workers may hang. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/watch/live_stack.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

struct stacks_job {
    struct python_room room;
    struct ct_buf text;
    int rc;
    int count;
    struct {
        int rank;
        pid_t pid;
    } list[];
};

static void write_stacks(void *context)
{
    struct stacks_job *job = context;

    for (int i = 0; i < job->count && job->rc == 0; i++)
        job->rc = live_stack_write(&job->text, job->list[i].rank, job->list[i].pid,
                                   &job->room);
}

static void free_job(void *context)
{
    struct stacks_job *job = context;

    ct_buf_deinit(&job->text);
    free(job);
}

static struct stacks_job *make_job(const struct agent *agent, int rank)
{
    const int count = worker_group_count(agent->group);
    struct stacks_job *job = ct_zalloc(sizeof *job +
                                       (size_t)count * sizeof job->list[0]);

    if (!job)
        return NULL;
    ct_buf_init(&job->text, STACKS_TEXT_MAX_BYTES);
    for (int i = 0; i < count; i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (worker->state != WORKER_RUNNING || (rank >= 0 && worker->rank != rank))
            continue;
        job->list[job->count].rank = worker->rank;
        job->list[job->count++].pid = worker->pid;
    }
    return job;
}

static int format(struct ct_buf *out, const struct ct_buf *text)
{
    /* Plain text has nothing that JSON writes as more than two characters but for what is rare. */
    const size_t size = 2 * ct_buf_length(text) + 64;
    char *const plain = ct_zalloc(ct_buf_length(text) + 1);
    uint8_t *const quoted = ct_zalloc(size);
    struct ct_writer writer;
    int rc = -ENOMEM;

    if (plain && quoted) {
        memcpy(plain, ct_buf_data(text), ct_buf_length(text));
        ct_writer_init(&writer, quoted, size);
        ct_json_write_str(&writer, plain);
        rc = ct_write_end(&writer);
        if (rc >= 0)
            rc = ct_buf_printf(out, "{\"stacks\":%.*s}", (int)writer.length,
                               (const char *)quoted);
    }
    free(plain);
    free(quoted);
    return rc;
}

int agent_show_stacks(void *context, int rank, struct ct_buf *out,
                      struct ctrun_error *err)
{
    const struct agent *agent = context;
    struct stacks_job *job = make_job(agent, rank);
    int rc;

    if (!job)
        return ct_fail(err, -ENOMEM, "out of memory");
    if (job->count == 0) {
        free_job(job);
        return rank >= 0
                   ? ct_fail(err, -ESRCH, "rank %d does not run on this node", rank)
                   : ct_fail(err, -ESRCH, "no worker is running: the run is %s",
                             agent_state_name(agent->state));
    }
    rc = blocking_call(write_stacks, free_job, job, STACKS_WRITE_MS);
    if (rc < 0)
        return ct_fail(err, rc, "a file system of the workers does not answer");
    rc = job->rc < 0 ? job->rc : format(out, &job->text);
    free_job(job);
    return rc < 0 ? ct_fail(err, rc, "stacks: %s", strerror(-rc)) : 0;
}

/* ---- Files --------------------------------------------------------------------------- */

bool agent_make_evidence_path(char *dst, size_t size, const struct worker *worker,
                              const char *name)
{
    const char *file = worker->plan.error_file;
    const char *slash = file ? strrchr(file, '/') : NULL;

    return slash &&
           ct_format(dst, size, "%.*s/%s", (int)(slash - file), file, name) >= 0;
}

/* ---- One place --------------------------------------------------------------------------- */

struct place_job {
    struct python_room room;
    pid_t pid;
    struct live_place place;
};

static void find_place(void *context)
{
    struct place_job *job = context;

    live_stack_find_place(&job->place, job->pid, &job->room);
}

void agent_find_place(char dst[AGENT_PLACE_MAX], pid_t pid)
{
    struct place_job *job = ct_zalloc(sizeof *job);

    *dst = '\0';
    if (!job)
        return;
    job->pid = pid;
    if (blocking_call(find_place, free, job, PLACE_MS) < 0)
        return;
    memcpy(dst, job->place.own, AGENT_PLACE_MAX);
    free(job);
}
