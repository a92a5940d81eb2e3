/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/live_stack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/postmortem/traceback.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    DEPTH_MAX = 8, /* shells that wait for one another */
    FRAME_MAX_BYTES = PYTHON_NAME_MAX + PYTHON_FILE_MAX + 16
};

struct output {
    struct ct_buf *out;
    pid_t pid;
    int rc;
};

static const char *state_name(pid_t pid, uint64_t thread)
{
    char path[64];
    char stat[512];
    const char *state;

    (void)ct_format(path, sizeof path, "/proc/%d/task/%llu/stat", (int)pid,
                    (unsigned long long)thread);
    (void)ct_small_file_read(stat, sizeof stat, path);
    state = strrchr(stat, ')');
    switch (state && state[1] ? state[2] : 'X') {
    case 'R': return "running";
    case 'S': return "sleeping";
    case 'D': return "in the kernel, cannot be interrupted";
    case 'T':
    case 't': return "stopped";
    case 'X': return "gone";
    case 'Z': return "ended";
    default: return "idle";
    }
}

/* ---- Python ------------------------------------------------------------------------------ */

/* "load (/home/me/train.py:3)" */
static void format_frame(char *dst, size_t size, const struct python_frame *frame)
{
    if (frame->line > 0)
        (void)ct_format(dst, size, "%s (%s:%d)", frame->function, frame->file,
                        frame->line);
    else
        (void)ct_format(dst, size, "%s (%s)", frame->function, frame->file);
}

static void write_thread(void *context, const struct python_thread *thread)
{
    struct output *output = context;
    struct ct_buf *out = output->out;
    char text[FRAME_MAX_BYTES];

    if (output->rc < 0)
        return;
    output->rc = thread->native_id
                     ? ct_buf_printf(out, "  thread %llu, %s\n",
                                     (unsigned long long)thread->native_id,
                                     state_name(output->pid, thread->native_id))
                     : ct_buf_printf(out, "  a thread\n");
    for (int i = 0; i < thread->count && output->rc == 0; i++) {
        format_frame(text, sizeof text, &thread->frames[i]);
        output->rc = ct_buf_printf(out, "    %s\n", text);
    }
    if (output->rc == 0 && thread->is_cut)
        output->rc = ct_buf_printf(out, "    and more\n");
}

pid_t live_stack_only_child(pid_t pid)
{
    char path[64];
    char list[64];
    char *end;
    long child;

    (void)ct_format(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    (void)ct_small_file_read(list, sizeof list, path);
    child = strtol(list, &end, 10);
    return child > 0 && strspn(end, " \n") == strlen(end) ? (pid_t)child : 0;
}

static int find_python(struct python_process *out, pid_t pid)
{
    int rc = -ENOEXEC;

    for (int depth = 0; pid && rc == -ENOEXEC && depth < DEPTH_MAX; depth++) {
        rc = python_process_find(out, pid);
        pid = live_stack_only_child(pid);
    }
    return rc;
}

/* ---- Another program --------------------------------------------------------------------- */

static int write_process(struct ct_buf *out, int rank, pid_t pid, int why)
{
    char path[64];
    char name[64];
    char wait[64];

    (void)ct_format(path, sizeof path, "/proc/%d/comm", (int)pid);
    (void)ct_small_file_line(name, sizeof name, path);
    (void)ct_format(path, sizeof path, "/proc/%d/wchan", (int)pid);
    (void)ct_small_file_line(wait, sizeof wait, path);
    ct_make_plain(name, false);
    return ct_buf_printf(out, "rank %d: pid %d, %s, %s%s%s%s%s\n", rank, (int)pid,
                         *name ? name : "?", state_name(pid, (uint64_t)pid),
                         *wait && strcmp(wait, "0") != 0 ? " in " : "",
                         *wait && strcmp(wait, "0") != 0 ? wait : "",
                         why == -ENOEXEC   ? "; no Python"
                         : why == -ENOTSUP ? "; a Python whose frames ctrun cannot read"
                                           : "; its memory cannot be read: ",
                         why == -ENOEXEC || why == -ENOTSUP ? "" : strerror(-why));
}

int live_stack_write(struct ct_buf *out, int rank, pid_t pid, struct python_room *room)
{
    struct output output = {.out = out};
    struct python_process python;
    int rc = find_python(&python, pid);

    if (rc < 0)
        return write_process(out, rank, pid, rc);
    output.pid = python.pid;
    output.rc = ct_buf_printf(out, "rank %d: pid %d, Python 3.%d\n", rank,
                              (int)python.pid, python.offsets.minor);
    if (output.rc == 0 &&
        python_process_walk(&python, room, write_thread, &output) == 0)
        output.rc = ct_buf_printf(out, "  no thread of it runs Python\n");
    return output.rc;
}

/* ---- One place --------------------------------------------------------------------------- */

/* Files of torch in whose frames a rank waits for others: calls of torch.distributed itself (not what is
 * built on them: a checkpoint writes files, too), and the backward pass, which has no Python below it
 * while it sums gradients. */
static bool is_meeting(const struct python_frame *inner)
{
    static const char *const files[] = {"/torch/distributed/distributed_c10d.py",
                                        "/torch/distributed/rendezvous.py",
                                        "/torch/distributed/_functional_collectives.py",
                                        "/torch/distributed/c10d_logger.py",
                                        "/torch/nn/parallel/distributed.py",
                                        "/torch/autograd/__init__.py",
                                        "/torch/autograd/graph.py"};
    const size_t length = strlen(inner->file);

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (length >= strlen(files[i]) &&
            strcmp(inner->file + length - strlen(files[i]), files[i]) == 0)
            return true;
    return false;
}

static void take_place(void *context, const struct python_thread *thread)
{
    struct live_place *place = context;
    int own = 0;

    if (*place->own || thread->count == 0)
        return;
    while (own < thread->count && traceback_is_library(thread->frames[own].file))
        own++;
    format_frame(place->own, sizeof place->own,
                 &thread->frames[own < thread->count ? own : 0]);
    format_frame(place->inner, sizeof place->inner, &thread->frames[0]);
    place->meets = is_meeting(&thread->frames[0]);
}

void live_stack_find_place(struct live_place *out, pid_t pid, struct python_room *room)
{
    struct python_process python;

    *out = (struct live_place){0};
    out->is_python = find_python(&python, pid) == 0;
    if (out->is_python)
        (void)python_process_walk(&python, room, take_place, out);
}
