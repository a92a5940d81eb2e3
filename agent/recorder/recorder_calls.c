/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/recorder/recorder_calls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/limits.h"
#include "agent/recorder/json_recorder.h"
#include "agent/recorder/recorder_client.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

struct batch {
    struct recorder_view views[RECORDER_BATCH]; /* of the workers */
    struct recorder_view room;
};

static void on_answer(void *context, int place, const struct ct_buf *text)
{
    struct batch *batch = context;

    if (json_recorder_read(&batch->room, recorder_kinds[place % RECORDER_KINDS].name,
                           (const char *)ct_buf_data(text), ct_buf_length(text)) == 0)
        recorder_view_add(&batch->views[place / RECORDER_KINDS], &batch->room);
}

static int write_one(struct ct_buf *out, int rank, const struct recorder_view *view)
{
    const bool waits = *view->oldest.op;
    const struct recorder_call *call = waits ? &view->oldest : &view->newest;
    const uint64_t now_ns = ct_wall_ns();
    const uint64_t age_ns = now_ns > call->entered_ns ? now_ns - call->entered_ns : 0;

    if (!*call->op)
        return 0;
    return ct_buf_printf(
        out, "rank %d has %s %s %lld of %s%s%s, called %.1f s ago%s\n", rank,
        waits ? "not completed" : "completed", call->op, (long long)call->number,
        *call->title ? call->title : call->group, *call->sizes ? ", " : "", call->sizes,
        (double)age_ns / 1e9, waits ? "" : ", and no later call is known");
}

static int write_batch(struct ct_buf *out, const char *folder,
                       const struct recorder_place *list, int count,
                       struct batch *batch, uint64_t deadline_ms)
{
    int fds[RECORDER_KINDS * RECORDER_BATCH], rc = 0;

    memset(batch->views, 0, sizeof batch->views);
    for (int i = 0; i < RECORDER_KINDS * count; i++)
        fds[i] = recorder_ask_worker(folder, list[i / RECORDER_KINDS].pid,
                                     recorder_kinds[i % RECORDER_KINDS].for_calls);
    recorder_take_all(fds, RECORDER_KINDS * count, deadline_ms, on_answer, batch);
    for (int i = 0; i < count && rc >= 0; i++)
        rc = write_one(out, list[i].rank, &batch->views[i]);
    return rc < 0 ? rc : 0;
}

/* Silent recorders of one batch leave half of the time that is left to the next. */
int recorder_calls_write(struct ct_buf *out, const char *folder,
                         const struct recorder_place *list, int count,
                         uint64_t deadline_ms)
{
    struct batch *batch = ct_zalloc(sizeof *batch);
    int rc = batch ? 0 : -ENOMEM;

    for (int first = 0; first < count && rc == 0; first += RECORDER_BATCH) {
        const bool is_last = count - first <= RECORDER_BATCH;
        const uint64_t share_ms = (uint64_t)ct_left_ms(deadline_ms) / 2;

        rc = write_batch(out, folder, list + first,
                         is_last ? count - first : RECORDER_BATCH, batch,
                         is_last ? deadline_ms : deadline_ms - share_ms);
    }
    free(batch);
    return rc;
}
