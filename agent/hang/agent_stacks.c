/* SPDX-License-Identifier: Apache-2.0 */
/* Where workers of this node are in their code, for ctrunctl stacks (agent_stacks_all.c), for a hang and
 * for a collective that timed out (agent_timeout.c). A separate thread reads this, because the workers' file systems may hang. */
#include <errno.h>
#include <poll.h>
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
    uint64_t calls_ms; /* the recorders are asked until then, */
    uint64_t last_ms;  /* and no stack is read after that */
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
                                       job->calls_ms);
    for (int i = 0; i < job->count && job->rc == 0; i++)
        if (ct_now_ms() < job->last_ms)
            job->rc = live_stack_write(&job->text, job->list[i].rank, job->list[i].pid,
                                       &job->room);
        else
            job->rc = ct_buf_printf(&job->text,
                                    "rank %d: no time was left to read it\n",
                                    job->list[i].rank);
}

static void free_job(void *context)
{
    struct stacks_job *job = context;

    ct_buf_deinit(&job->text);
    free(job);
}

static struct stacks_job *make_job(const struct agent *agent, int rank,
                                   uint64_t limit_ms)
{
    const int count = worker_group_count(agent->group);
    struct stacks_job *job = ct_zalloc(sizeof *job +
                                       (size_t)count * sizeof job->list[0]);

    if (!job)
        return NULL;
    ct_buf_init(&job->text, STACKS_TEXT_MAX_BYTES);
    job->calls_ms = ct_now_ms() + limit_ms / STACKS_CALLS_PARTS;
    job->last_ms = ct_now_ms() + limit_ms - limit_ms / STACKS_LAST_PARTS;
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

int agent_write_stacks(const struct agent *agent, int rank, uint64_t limit_ms,
                       struct ct_buf *out, struct ctrun_error *err)
{
    struct stacks_job *job = make_job(agent, rank, limit_ms);
    int count, rc;

    if (!job)
        return ct_fail(err, -ENOMEM, "out of memory");
    count = job->count;
    if (count > 0) {
        rc = blocking_call_in(&lane, write_stacks, free_job, job, limit_ms);
        if (rc < 0)
            return ct_fail(
                err, rc,
                "the stacks could not be read in %.1f s: perhaps a file system "
                "of the workers does not answer",
                (double)limit_ms / 1000);
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

/* ---- Places ------------------------------------------------------------------------------ */

struct place_job {
    struct python_room room;
    uint64_t due_ms;
    int count;
    struct agent_place list[];
};

static void find_places(void *context)
{
    struct place_job *job = context;

    (void)poll(NULL, 0, ct_left_ms(job->due_ms));
    for (int i = 0; i < job->count; i++)
        live_stack_find_place(&job->list[i].at, job->list[i].pid, &job->room);
}

bool agent_find_places(struct agent_place *list, int count, uint64_t due_ms,
                       uint64_t limit_ms)
{
    const size_t size = (size_t)count * sizeof *list;
    struct place_job *job = ct_zalloc(sizeof *job + size);

    if (!job)
        return false;
    job->due_ms = due_ms;
    job->count = count;
    memcpy(job->list, list, size);
    if (blocking_call_in(&lane, find_places, free, job, limit_ms) < 0)
        return false;
    memcpy(list, job->list, size);
    free(job);
    return true;
}

void agent_find_place(char dst[AGENT_PLACE_MAX], pid_t pid)
{
    struct agent_place place = {.pid = pid};

    (void)agent_find_places(&place, 1, 0, PLACE_MS);
    memcpy(dst, place.at.own, AGENT_PLACE_MAX);
}
