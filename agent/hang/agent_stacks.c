/* SPDX-License-Identifier: Apache-2.0 */
/* Where workers of this node are in their code, for ctrunctl stacks (agent_stacks_all.c) and for a
 * hang. A separate thread reads this, because the workers' file systems may hang. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/loop/blocking_call.h"
#include "agent/loop/limits.h"
#include "agent/recorder/recorder_calls.h"
#include "agent/watch/live_stack.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

/* Belongs to the thread while the thread runs; a thread that is late keeps and frees the job
 * (blocking_call.h). So the job has copies of ranks and pids, and points to no worker. */
struct stacks_job {
    struct live_room room;
    char folder[PATH_MAX]; /* of the recorders' sockets; empty: there are none */
    struct ct_buf text;
    int rc;
    int count;
    struct recorder_place list[];
};

/* Calls that read files of workers. Those for log files do not wait for them. */
static struct blocking_lane lane;

static void write_stacks(void *context)
{
    struct stacks_job *job = context;

    if (*job->folder)
        job->rc = recorder_calls_write(&job->text, job->folder, job->list, job->count,
                                       ct_now_ms() + STACKS_CALLS_MS);
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
    recorder_folder_sockets(agent->recorder, job->folder);
    for (int i = 0; i < count; i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (worker->state != WORKER_RUNNING || (rank >= 0 && worker->rank != rank))
            continue;
        job->list[job->count].rank = worker->rank;
        job->list[job->count++].pid = worker->pid;
    }
    return job;
}

int agent_write_stacks(const struct agent *agent, int rank, struct ct_buf *out,
                       struct ctrun_error *err)
{
    struct stacks_job *job = make_job(agent, rank);
    int count, rc;

    if (!job)
        return ct_fail(err, -ENOMEM, "out of memory");
    count = job->count;
    if (count > 0) {
        rc = blocking_call_in(&lane, write_stacks, free_job, job, STACKS_WRITE_MS);
        if (rc < 0)
            return ct_fail(
                err, rc,
                "the stacks could not be read in %d s: perhaps a file system "
                "of the workers does not answer",
                STACKS_WRITE_MS / 1000);
        rc = job->rc < 0 ? job->rc
                         : ct_buf_append(out, ct_buf_data(&job->text),
                                         ct_buf_length(&job->text));
        if (rc < 0)
            count = ct_fail(err, rc, "stacks: %s", strerror(-rc));
    }
    free_job(job);
    return count;
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
    if (blocking_call_in(&lane, find_place, free, job, PLACE_MS) < 0)
        return;
    memcpy(dst, job->place.own, AGENT_PLACE_MAX);
    free(job);
}
