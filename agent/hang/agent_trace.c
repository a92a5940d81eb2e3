/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/hang/agent_trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/blocking_call.h"
#include "agent/postmortem/flight.h"
#include "agent/recorder/json_recorder.h"
#include "worker_sdk/base/alloc.h"

struct agent_trace {
    struct ct_buf out;
    char path[PATH_MAX];
    uint64_t now_ns;
    int most; /* calls of each rank */
    int rc;
    int count;
    struct {
        int rank;
        char *dump; /* owned */
    } list[];
};

static void free_trace(void *context)
{
    struct agent_trace *trace = context;

    ct_buf_deinit(&trace->out);
    for (int i = 0; i < trace->count; i++)
        free(trace->list[i].dump);
    free(trace);
}

/* An answer that is not valid is left out. */
static void write_trace(void *context)
{
    struct agent_trace *trace = context;
    int added = 0;

    trace->rc = flight_begin_trace(&trace->out);
    for (int i = 0; i < trace->count && trace->rc >= 0; i++) {
        const char *dump = trace->list[i].dump;
        const int rc = json_recorder_add_trace(&trace->out, trace->list[i].rank,
                                               trace->most, trace->now_ns, dump,
                                               strlen(dump), added == 0);

        added += rc == 0;
        trace->rc = rc == -EBADMSG ? 0 : rc;
    }
    if (trace->rc >= 0)
        trace->rc = flight_end_trace(&trace->out);
    if (trace->rc >= 0 && added > 0)
        trace->rc = agent_write_evidence(trace->path, &trace->out);
}

struct agent_trace *agent_take_trace(const struct agent *agent,
                                     const struct stacks_target *targets, int count)
{
    struct agent_trace *trace = ct_zalloc(sizeof *trace +
                                          (size_t)count * sizeof trace->list[0]);

    if (!trace)
        return NULL;
    ct_buf_init(&trace->out, FLIGHT_FILE_MAX_BYTES);
    trace->now_ns = ct_wall_ns();
    trace->most = count > 0 ? FLIGHT_CALLS_MAX / count : 0;
    for (int i = 0; i < count; i++) {
        const size_t size = targets[i].dump ? strlen(targets[i].dump) + 1 : 0;
        char *dump = size > 0 ? ct_zalloc(size) : NULL;

        if (!dump)
            continue;
        memcpy(dump, targets[i].dump, size);
        trace->list[trace->count].rank = targets[i].rank;
        trace->list[trace->count++].dump = dump;
    }
    if (trace->count > 0 && agent_make_round_path(trace->path, sizeof trace->path,
                                                  agent, "flight_recorder", "json"))
        return trace;
    free_trace(trace);
    return NULL;
}

void agent_save_trace(struct agent_trace *trace)
{
    static struct blocking_lane
        lane; /* a file system that hangs delays no other file */
    char path[PATH_MAX];
    int rc;

    if (!trace)
        return;
    memcpy(path, trace->path, sizeof path);
    rc = blocking_call_in(&lane, write_trace, free_trace, trace, FLIGHT_WRITE_MS);
    if (rc == 0) { /* else the thread owns it */
        rc = trace->rc;
        free_trace(trace);
    }
    if (rc < 0)
        ct_warn("the calls of the flight recorders were not saved path=%s why=%s", path,
                strerror(-rc));
}
