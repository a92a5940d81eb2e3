/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/live_native.h"

#include <errno.h>

#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    PLACE_MAX_BYTES = NATIVE_NAME_MAX + 128,
    LISTED_MAX = 8 /* threads of one group, by their numbers */
};

static pid_t pid_of(const struct live_native *native)
{
    return native->room.modules.pid;
}

/* ---- One thread -------------------------------------------------------------------------- */

/* A frame of CPython: frames further out are the interpreter's own. */
static bool is_interpreter(const char *place)
{
    return ct_starts_with(place, "_PyEval_EvalFrameDefault") ||
           ct_starts_with(place, "_TAIL_CALL_"); /* 3.14, if it was built so */
}

static const char *end_text(enum native_end end)
{
    switch (end) {
    case NATIVE_WHOLE: return NULL;
    case NATIVE_TOO_MANY: return "and more frames";
    case NATIVE_NO_CODE: return "callers are not known: that place is not in a file";
    case NATIVE_NO_FILE: return "callers are not known: that file cannot be read";
    case NATIVE_NO_ENTRY:
        return "callers are not known: that file has no unwind table for it";
    case NATIVE_UNREADABLE:
        return "callers are not known: the unwind table of that file gives no valid "
               "caller";
    case NATIVE_NO_REGISTER:
        return "callers are not known: the unwind table needs a register whose value "
               "is "
               "not known";
    case NATIVE_NO_MEMORY:
        return "callers are not known: the stack was not read that far";
    case NATIVE_NOT_COPIED: return "C frames are not known";
    }
    return NULL;
}

/* ", traced by pid 12", if that is the reason. */
static void format_tracer(char *dst, size_t size, const struct live_native *native,
                          const struct native_thread *thread)
{
    char status[4096];
    const char *tracer;
    long pid = 0;

    (void)ct_small_file_of(status, sizeof status, pid_of(native), thread->id, "status");
    if (thread->error == -EPERM && (tracer = ct_small_file_find(status, "TracerPid:")))
        pid = strtol(tracer, NULL, 10);
    *dst = '\0';
    if (pid > 0)
        (void)ct_format(dst, size, ", traced by pid %ld", pid);
}

static int write_end(struct ct_buf *out, const struct live_native *native,
                     const struct native_thread *thread)
{
    const char *text = end_text(thread->end);
    char tracer[48];

    if (!text)
        return 0;
    if (thread->error == 0)
        return ct_buf_printf(out, "    %s\n", text);
    format_tracer(tracer, sizeof tracer, native, thread);
    return ct_buf_printf(out, "    %s: the thread could not be stopped: %s%s\n", text,
                         thread->error == -ETIMEDOUT ? "it is in the kernel, or the "
                                                       "machine is busy"
                                                     : strerror(-thread->error),
                         tracer);
}

/* Appends frames up to the interpreter, or all if shows_all. */
static int write_frames(struct ct_buf *out, const struct live_native *native,
                        const struct native_thread *thread, bool shows_all)
{
    char place[PLACE_MAX_BYTES];
    int rc = 0;

    for (int i = 0; i < thread->count && rc == 0; i++) {
        native_stack_format(place, sizeof place, &native->room, thread->places[i]);
        if (!shows_all && is_interpreter(place))
            return 0;
        rc = ct_buf_printf(out, "    in %s\n", place);
    }
    return rc < 0 ? rc : write_end(out, native, thread);
}

static const struct native_thread *find(const struct live_native *native,
                                        uint64_t thread)
{
    return thread <= INT32_MAX ? native_stack_find(&native->room, (pid_t)thread) : NULL;
}

bool live_native_has(const struct live_native *native, uint64_t thread)
{
    return find(native, thread) != NULL;
}

int live_native_write(struct ct_buf *out, struct live_native *native, uint64_t thread)
{
    const struct native_thread *found = find(native, thread);

    if (!found)
        return 0;
    native->is_written[found - native->room.threads] = true;
    return write_frames(out, native, found, false);
}

/* ---- The others -------------------------------------------------------------------------- */

static bool is_alike(const struct live_native *native, int a, int b)
{
    const struct native_thread *x = &native->room.threads[a];
    const struct native_thread *y = &native->room.threads[b];

    return x->count == y->count && x->end == y->end && x->error == y->error &&
           memcmp(x->places, y->places, (size_t)x->count * sizeof x->places[0]) == 0 &&
           strcmp(native->states[a], native->states[b]) == 0;
}

static int write_one(struct ct_buf *out, const struct live_native *native, int index)
{
    const struct native_thread *thread = &native->room.threads[index];
    char name[64];

    (void)ct_small_file_of(name, sizeof name, pid_of(native), thread->id, "comm");
    name[strcspn(name, "\n")] = '\0';
    ct_make_plain(name, false);
    return ct_buf_printf(out, "  thread %d%s%s%s, %s\n", (int)thread->id,
                         *name ? " (" : "", name, *name ? ")" : "",
                         native->states[index]);
}

/* Writes thread `first` and the later threads at the same place. */
static int write_group(struct ct_buf *out, struct live_native *native, int first)
{
    int members[NATIVE_THREADS_MAX];
    int count = 0, rc;

    for (int i = first; i < native->room.count; i++)
        if (!native->is_written[i] && is_alike(native, first, i)) {
            native->is_written[i] = true;
            members[count++] = i;
        }
    if (count == 1)
        return write_one(out, native, first);
    rc = ct_buf_printf(out, "  %d threads, ", count);
    for (int i = 0; i < count && i < LISTED_MAX && rc == 0; i++)
        rc = ct_buf_printf(out, "%s%d", i > 0 ? " " : "",
                           (int)native->room.threads[members[i]].id);
    return rc < 0
               ? rc
               : ct_buf_printf(out, "%s, %s\n", count > LISTED_MAX ? " and more" : "",
                               native->states[first]);
}

static const char *why_text(int why)
{
    switch (why) {
    case -ENOTSUP: return "ctrun cannot read them on this processor";
    case -EPERM: return "the kernel does not let ctrun read them";
    case -ESRCH: return "the process has ended";
    default: return strerror(-why);
    }
}

int live_native_write_others(struct ct_buf *out, struct live_native *native, int why)
{
    int rc = why < 0 ? ct_buf_printf(out, "  no C frames: %s\n", why_text(why)) : 0;

    for (int i = 0; i < native->room.count; i++)
        if (!native->is_written[i])
            live_state_format(native->states[i], pid_of(native),
                              (uint64_t)native->room.threads[i].id);
    for (int i = 0; i < native->room.count && rc == 0; i++)
        if (!native->is_written[i] && (rc = write_group(out, native, i)) == 0)
            rc = write_frames(out, native, &native->room.threads[i], true);
    if (rc == 0 && native->room.is_cut)
        rc = ct_buf_printf(out, "  and more threads\n");
    native_stack_forget(&native->room);
    return rc;
}

int live_native_read(struct live_native *native, pid_t pid)
{
    memset(native->is_written, 0, sizeof native->is_written);
    return native_stack_read(&native->room, pid);
}
