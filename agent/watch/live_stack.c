/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/live_stack.h"

#include <errno.h>
#include <sys/syscall.h>

#include "agent/loop/limits.h"
#include "agent/postmortem/traceback.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    DEPTH_MAX = 8,   /* shells, or Pythons, that wait for one another */
    LISTED_MAX = 8,  /* threads of one group, by their numbers */
    GROUPS_MAX = 64, /* more in a process are not looked for likenesses */
    FRAME_MAX_BYTES = PYTHON_NAME_MAX + PYTHON_FILE_MAX + 16
};

/* Threads with the same state and frames. */
struct group {
    size_t at, length; /* of state and frames, in `text` */
    int count;
    uint64_t ids[LISTED_MAX];
};

struct output {
    struct ct_buf *out;
    struct live_native *native;
    pid_t pid;
    int rc;
    struct ct_buf text;
    int group_count;
    struct group groups[GROUPS_MAX];
};

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

static void write_group(struct output *output, const struct group *group)
{
    struct ct_buf *out = output->out;
    const int listed = group->count < LISTED_MAX ? group->count : LISTED_MAX;

    if (group->count > 1)
        output->rc = ct_buf_printf(out, "  %d threads", group->count);
    else
        output->rc = ct_buf_printf(out, group->ids[0] ? "  thread" : "  a thread");
    for (int i = 0; i < listed && group->ids[0] && output->rc == 0; i++)
        output->rc = ct_buf_printf(out, "%s %llu",
                                   group->count > 1 && i == 0 ? "," : "",
                                   (unsigned long long)group->ids[i]);
    if (output->rc == 0 && group->count > LISTED_MAX && group->ids[0])
        output->rc = ct_buf_printf(out, " and more");
    if (output->rc == 0)
        output->rc = ct_buf_append(out, ct_buf_data(&output->text) + group->at,
                                   group->length);
}

static void write_groups(struct output *output)
{
    for (int i = 0; i < output->group_count && output->rc == 0; i++)
        write_group(output, &output->groups[i]);
    output->group_count = 0;
    ct_buf_consume(&output->text, ct_buf_length(&output->text));
}

/* Adds the thread whose text begins at `at` to the group of the same text, or to a new one. */
static void add_to_group(struct output *output, size_t at, uint64_t id)
{
    const size_t length = ct_buf_length(&output->text) - at;
    const uint8_t *text = ct_buf_data(&output->text);
    struct group *group = output->groups;
    const struct group *end = group + output->group_count;

    while (group < end && (group->length != length || !group->ids[0] != !id ||
                           memcmp(text + group->at, text + at, length) != 0))
        group++;
    if (group == end)
        *group = (struct group){.at = at, .length = length};
    output->group_count += group == end;
    if (group->count < LISTED_MAX)
        group->ids[group->count] = id;
    group->count++;
}

/* A thread without Python frames, such as one of autograd, is shown with the other C threads; the first
 * thread is always in front. */
static bool is_native(const struct output *output, const struct python_thread *thread)
{
    return thread->count == 0 && thread->native_id != 0 &&
           thread->native_id != (uint64_t)output->pid &&
           live_native_has(output->native, thread->native_id);
}

static void write_thread(void *context, const struct python_thread *thread)
{
    struct output *output = context;
    struct ct_buf *out = &output->text;
    char text[FRAME_MAX_BYTES], state[LIVE_STATE_MAX];
    size_t at;

    if (output->rc < 0 || is_native(output, thread))
        return;
    if (output->group_count == GROUPS_MAX)
        write_groups(output);
    at = ct_buf_length(out);
    live_state_format(state, output->pid, thread->native_id);
    output->rc = thread->native_id ? ct_buf_printf(out, ", %s\n", state)
                                   : ct_buf_printf(out, "\n");
    if (output->rc == 0)
        output->rc = live_native_write(out, output->native, thread->native_id);
    for (int i = 0; i < thread->count && output->rc == 0; i++) {
        format_frame(text, sizeof text, &thread->frames[i]);
        output->rc = ct_buf_printf(out, "    %s\n", text);
    }
    if (output->rc == 0 && thread->is_cut)
        output->rc = ct_buf_printf(out, "    and more\n");
    if (output->rc == 0)
        add_to_group(output, at, thread->native_id);
}

pid_t live_stack_only_child(pid_t pid)
{
    pid_t list[2];

    return ct_small_file_children(list, 2, pid) == 1 ? list[0] : 0;
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

static bool waits_for_child(pid_t pid)
{
    char text[256];
    char *end;
    long call;

    (void)ct_small_file_of(text, sizeof text, pid, pid, "syscall");
    call = strtol(text, &end, 10);
    return end > text && (call == SYS_wait4 || call == SYS_waitid);
}

/* The Python that this one has started, and waits for: `accelerate launch`, `python wrapper.py`. */
static bool find_wrapped(struct python_process *out,
                         const struct python_process *wrapper)
{
    return waits_for_child(wrapper->pid) &&
           find_python(out, live_stack_only_child(wrapper->pid)) == 0;
}

/* ---- Another program --------------------------------------------------------------------- */

static int write_process(struct ct_buf *out, int rank, pid_t pid, int why)
{
    char name[64];
    char state[LIVE_STATE_MAX];

    (void)ct_small_file_of(name, sizeof name, pid, 0, "comm");
    name[strcspn(name, "\n")] = '\0';
    ct_make_plain(name, false);
    live_state_format(state, pid, (uint64_t)pid);
    return ct_buf_printf(out, "rank %d: pid %d, %s, %s%s%s\n", rank, (int)pid,
                         *name ? name : "?", state,
                         why == -ENOEXEC   ? "; no Python"
                         : why == -ENOTSUP ? "; a Python whose frames ctrun cannot read"
                                           : "; its memory cannot be read: ",
                         why == -ENOEXEC || why == -ENOTSUP ? "" : strerror(-why));
}

static int write_python(struct ct_buf *out, int rank,
                        const struct python_process *python, struct live_room *room,
                        int depth)
{
    struct python_process wrapped;
    struct output output = {.out = out, .native = &room->native, .pid = python->pid};
    char state[LIVE_STATE_MAX];
    int why;

    if (depth < DEPTH_MAX &&
        find_wrapped(&wrapped, python)) /* what it waits for first */
        output.rc = write_python(out, rank, &wrapped, room, depth + 1);
    if (output.rc < 0)
        return output.rc;
    ct_buf_init(&output.text, STACKS_TEXT_MAX_BYTES);
    live_state_format(state, python->pid, (uint64_t)python->pid);
    why = live_native_read(&room->native, python->pid);
    output.rc = ct_buf_printf(out, "rank %d: pid %d, Python 3.%d, %s\n", rank,
                              (int)python->pid, python->offsets.minor, state);
    if (output.rc == 0 &&
        python_process_walk(python, &room->python, write_thread, &output) == 0)
        output.rc = ct_buf_printf(out, "  no thread of it runs Python\n");
    if (output.rc == 0)
        write_groups(&output);
    ct_buf_deinit(&output.text);
    why = live_native_write_others(out, &room->native, why);
    return output.rc < 0 ? output.rc : why;
}

int live_stack_write(struct ct_buf *out, int rank, pid_t pid, struct live_room *room)
{
    struct python_process python;
    int rc = find_python(&python, pid);
    const bool is_readable = rc == -ENOEXEC || rc == -ENOTSUP;

    if (rc == 0)
        return write_python(out, rank, &python, room, 0);
    if ((rc = write_process(out, rank, pid, rc)) < 0 || !is_readable)
        return rc;
    return live_native_write_others(out, &room->native,
                                    live_native_read(&room->native, pid));
}

/* ---- One place --------------------------------------------------------------------------- */

static bool is_in(const struct python_frame *inner, const char *const *files)
{
    const size_t length = strlen(inner->file);

    for (; *files; files++)
        if (length >= strlen(*files) &&
            strcmp(inner->file + length - strlen(*files), *files) == 0)
            return true;
    return false;
}

/* Files of torch in whose frames a rank waits for others: calls of torch.distributed itself; not
 * modules above it: a checkpoint writes files, too. */
static const char *const collective_files[] = {
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/rendezvous.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/c10d_logger.py",
    "/torch/nn/parallel/distributed.py",
    NULL};
/* The backward pass sums gradients without a Python frame below, and computes. */
static const char *const backward_files[] = {"/torch/autograd/__init__.py",
                                             "/torch/autograd/graph.py", NULL};

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
    place->meets = is_in(&thread->frames[0], collective_files);
    place->is_backward = is_in(&thread->frames[0], backward_files);
}

void live_stack_find_place(struct live_place *out, pid_t pid, struct python_room *room)
{
    struct python_process python, wrapped;

    *out = (struct live_place){0};
    out->is_python = find_python(&python, pid) == 0;
    for (int depth = 0; out->is_python && depth < DEPTH_MAX; depth++) {
        if (!find_wrapped(&wrapped, &python))
            break;
        python = wrapped;
    }
    if (out->is_python)
        (void)python_process_walk(&python, room, take_place, out);
}
