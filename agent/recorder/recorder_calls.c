/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/recorder/recorder_calls.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/loop/limits.h"
#include "agent/recorder/json_recorder.h"
#include "agent/recorder/recorder_client.h"
#include "agent/watch/live_stack.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

enum {
    DEPTH_MAX = 8 /* of shells that wait for one another, above a Python */
};

/* Asks the first process that has a server, of the worker and its only children. */
static int ask(const char *folder, pid_t pid, const char *handler)
{
    char path[PATH_MAX];
    int fd = -ENOENT;

    for (int depth = 0; pid && fd == -ENOENT && depth < DEPTH_MAX; depth++) {
        if (ct_format(path, sizeof path, "%s%d", folder, (int)pid) < 0)
            return -ENAMETOOLONG;
        fd = recorder_ask(path, handler);
        pid = live_stack_only_child(pid);
    }
    return fd;
}

/* Adds the answer of one recorder; without one the view stays as it is. */
static void take(struct recorder_view *view, struct recorder_view *room,
                 const char *kind, int fd, uint64_t deadline_ms)
{
    struct ct_buf text;

    if (fd < 0)
        return;
    ct_buf_init(&text, RECORDER_TEXT_MAX_BYTES);
    if (recorder_take(&text, fd, deadline_ms) == 0 &&
        json_recorder_read(room, kind, (const char *)ct_buf_data(&text),
                           ct_buf_length(&text)) == 0)
        recorder_view_add(view, room);
    ct_buf_deinit(&text);
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

/* All of a batch are asked before the first answer is read. */
static int write_batch(struct ct_buf *out, const char *folder,
                       const struct recorder_place *list, int count,
                       struct recorder_view room[2], uint64_t deadline_ms)
{
    int fds[RECORDER_BATCH][RECORDER_KINDS], rc = 0;

    for (int i = 0; i < count; i++)
        for (int kind = 0; kind < RECORDER_KINDS; kind++)
            fds[i][kind] = ask(folder, list[i].pid, recorder_kinds[kind].handler);
    for (int i = 0; i < count; i++) {
        room[0] = (struct recorder_view){0};
        for (int kind = 0; kind < RECORDER_KINDS; kind++)
            take(&room[0], &room[1], recorder_kinds[kind].name, fds[i][kind],
                 deadline_ms);
        if (rc >= 0)
            rc = write_one(out, list[i].rank, &room[0]);
    }
    return rc < 0 ? rc : 0;
}

int recorder_calls_write(struct ct_buf *out, const char *folder,
                         const struct recorder_place *list, int count,
                         uint64_t deadline_ms)
{
    struct recorder_view *room = ct_zalloc_array(2, sizeof *room);
    int rc = room ? 0 : -ENOMEM;

    for (int first = 0; first < count && rc == 0; first += RECORDER_BATCH) {
        const int left = count - first;

        rc = write_batch(out, folder, list + first,
                         left < RECORDER_BATCH ? left : RECORDER_BATCH, room,
                         deadline_ms);
    }
    free(room);
    return rc;
}
