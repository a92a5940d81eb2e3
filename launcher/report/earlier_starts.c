/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/earlier_starts.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "agent/loop/blocking_call.h"
#include "launcher/report/json_summary.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    WAIT_MS = 2000,
    FILES_MAX = 10000 /* in the log folder */
};

struct search {
    char base[PATH_MAX];
    char job[CT_RUN_ID_MAX];    /* the task without its number of requeues */
    char prefix[CT_RUN_ID_MAX]; /* of the folders of the job's starts */
    uint32_t requeues;
    uint32_t found; /* 1 + the newest start that has a summary; 0: none */
    uint64_t restarts;
    uint32_t unknown; /* of that start */
    uint64_t due_ms;
};

static struct blocking_lane lane = {.needs_thread = true};

/* It is of this job, and earlier than this start. */
static bool is_earlier(const struct search *search,
                       const struct json_summary_start *start)
{
    char own[CT_RUN_ID_MAX];

    if (start->requeues == 0)
        (void)ct_copy(own, sizeof own, search->job); /* same size */
    else if (ct_format(own, sizeof own, "%s.%u", search->job, start->requeues) < 0)
        return false;
    return start->requeues < search->requeues && strcmp(start->batch_task, own) == 0;
}

/* Several nodes of a start may have left a file: that which has seen most counts. */
static void look_at(struct search *search, const char *name)
{
    struct json_summary_start start;
    char path[PATH_MAX];

    if (ct_format(path, sizeof path, "%s/%s/summary.json", search->base, name) < 0 ||
        json_summary_read_start(path, &start) < 0 || !is_earlier(search, &start) ||
        start.requeues + 1 < search->found ||
        (start.requeues + 1 == search->found &&
         start.total_restarts <= search->restarts))
        return;
    search->found = start.requeues + 1;
    search->restarts = start.total_restarts;
    search->unknown = start.unknown_starts;
}

static void look(void *job)
{
    struct search *search = job;
    DIR *dir = opendir(search->base);
    const struct dirent *entry;

    for (int i = 0; dir && i < FILES_MAX && ct_left_ms(search->due_ms) > 0 &&
                    (entry = readdir(dir));
         i++)
        if (ct_starts_with(entry->d_name, search->prefix))
            look_at(search, entry->d_name);
    if (dir)
        closedir(dir);
}

/* "slurm-41.0" of "slurm-41.0.2"; false: it does not end with that number. */
static bool find_job(struct search *search, const char *task)
{
    char end[16];
    const size_t length = strlen(task);

    (void)ct_format(end, sizeof end, ".%u", search->requeues);
    if (length <= strlen(end) || strcmp(task + length - strlen(end), end) != 0)
        return false;
    return ct_format(search->job, sizeof search->job, "%.*s",
                     (int)(length - strlen(end)), task) >= 0;
}

/* Without --rdzv-id the run is named after the task. */
static int fill(struct search *search, const struct earlier_starts_of *of)
{
    search->requeues = of->requeues;
    if (!find_job(search, of->task))
        return -ENAMETOOLONG;
    (void)ct_format(search->prefix, sizeof search->prefix, "%.200s",
                    strcmp(of->run_id, of->task) == 0 ? search->job : of->run_id);
    for (char *p = search->prefix; *p; p++) /* as in logdir.c */
        if (*p == '/')
            *p = '_';
    return ct_copy(search->base, sizeof search->base, of->base);
}

void earlier_starts_find(struct job_starts *out, const struct earlier_starts_of *of)
{
    const uint32_t requeues = of->requeues;
    struct search *search;

    *out = (struct job_starts){.requeues = requeues, .unknown = requeues};
    if (requeues == 0 || !of->base || !(search = ct_zalloc(sizeof *search)))
        return;
    if (fill(search, of) < 0) {
        free(search);
        return;
    }
    search->due_ms = ct_deadline_ms(WAIT_MS);
    if (blocking_call_in(&lane, look, free, search, WAIT_MS) < 0)
        return; /* the call frees it */
    if (search->found > 0) {
        out->restarts = search->restarts;
        out->unknown = requeues - search->found + search->unknown;
    }
    free(search);
}
