/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/native/native_copy.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/thread.h"

enum {
    PAGE_BYTES = 4096,
    PAGES_MAX = NATIVE_STACK_MAX_BYTES / PAGE_BYTES,
    TRIES = 3,     /* with a thread that runs now and then */
    STOP_MS = 100, /* only a busy machine or the kernel delays a stop this long */
    STOP_PAUSE_NS = 20000,
    RED_ZONE_BYTES =
        128, /* below the stack pointer, which signal handlers spare: psABI */
};

/* ---- The stack --------------------------------------------------------------------------- */

/* One page at a time, so that an unreadable page behind the end of the stack costs only itself. */
static int copy_from(struct native_copy *out, pid_t pid, uint64_t at)
{
    struct iovec from[PAGES_MAX];
    const struct iovec to = {.iov_base = out->bytes, .iov_len = sizeof out->bytes};
    size_t left = sizeof out->bytes;
    ssize_t length;
    int count = 0;

    out->start = at;
    while (left > 0 && count < PAGES_MAX) {
        size_t part = PAGE_BYTES - at % PAGE_BYTES;

        part = part < left ? part : left;
        /* An address of that process. */
        from[count++] = (struct iovec){(void *)(uintptr_t)at, part};
        at += part;
        left -= part;
    }
    length = process_vm_readv(pid, &to, 1, from, (unsigned long)count, 0);
    out->length = length > 0 ? (size_t)length : 0;
    return length > 0 ? 0 : length < 0 ? -errno : -EFAULT;
}

/* With what a function has just popped: until it returns, the rules of its frame find registers there. */
static int copy_stack(struct native_copy *out, pid_t pid)
{
    const uint64_t top = out->frame.values[CFI_RSP];

    return copy_from(out, pid, top - RED_ZONE_BYTES) == 0 ? 0
                                                          : copy_from(out, pid, top);
}

bool native_copy_read(void *context, uint64_t address, uint64_t *word)
{
    const struct native_copy *copy = context;

    if (address < copy->start || address - copy->start > copy->length ||
        copy->length - (address - copy->start) < sizeof *word)
        return false;
    memcpy(word, copy->bytes + (address - copy->start), sizeof *word);
    return true;
}

/* ---- Asleep ------------------------------------------------------------------------------ */

struct sleeper {
    char call[256]; /* call number, arguments, stack pointer and instruction pointer */
    char switches[128]; /* how often the thread was given a processor */
};

static int look(struct sleeper *out, pid_t pid, pid_t thread)
{
    char status[4096];
    const char *switches;
    ssize_t rc = ct_small_file_of(out->call, sizeof out->call, pid, thread, "syscall");

    if (rc < 0)
        return rc == -EACCES ? -EPERM : rc == -ENOENT ? -ENOSYS : (int)rc;
    if ((rc = ct_small_file_of(status, sizeof status, pid, thread, "status")) < 0)
        return (int)rc;
    switches = strstr(status, "voluntary_ctxt_switches");
    if (!switches)
        return -ENOSYS;
    (void)ct_copy(out->switches, sizeof out->switches, switches); /* to the end */
    return 0;
}

/* Reads the last two numbers; false for "running". */
static bool parse_call(struct cfi_frame *out, const char *call)
{
    const char *place = strrchr(call, ' ');
    const char *stack = place;

    if (!place)
        return false;
    while (stack > call && stack[-1] != ' ')
        stack--;
    *out = (struct cfi_frame){.known = 1u << CFI_RSP | 1u << CFI_RIP};
    out->values[CFI_RSP] = strtoull(stack, NULL, 16);
    out->values[CFI_RIP] = strtoull(place + 1, NULL, 16);
    return out->values[CFI_RSP] != 0 && out->values[CFI_RIP] != 0;
}

int native_copy_asleep(struct native_copy *out, pid_t pid, pid_t thread)
{
    struct sleeper before, after;
    int rc = look(&before, pid, thread);

    for (int i = 0; rc == 0 && i < TRIES; i++) {
        if (!parse_call(&out->frame, before.call))
            return -EAGAIN;
        if ((rc = copy_stack(out, pid)) < 0 || (rc = look(&after, pid, thread)) < 0)
            return rc;
        if (strcmp(before.call, after.call) == 0 &&
            strcmp(before.switches, after.switches) == 0)
            return 0;
        before = after;
    }
    return rc < 0 ? rc : -EAGAIN;
}

/* ---- Stopped ----------------------------------------------------------------------------- */

struct stop {
    struct native_copy *out;
    pid_t pid, thread;
    int rc;
};

#if defined(__x86_64__)
static void take_registers(struct cfi_frame *out, const struct user_regs_struct *from)
{
    *out = (struct cfi_frame){
        .values = {from->rax, from->rdx, from->rcx, from->rbx, from->rsi, from->rdi,
                   from->rbp, from->rsp, from->r8, from->r9, from->r10, from->r11,
                   from->r12, from->r13, from->r14, from->r15, from->rip},
        .known = (1u << CFI_REGISTERS) - 1};
}

static int copy_now(struct native_copy *out, pid_t pid, pid_t thread)
{
    struct user_regs_struct registers;
    struct iovec to = {.iov_base = &registers, .iov_len = sizeof registers};

    if (ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRSTATUS, &to) < 0)
        return -errno;
    if (to.iov_len != sizeof registers)
        return -ENOTSUP; /* a program of 32 bits */
    take_registers(&out->frame, &registers);
    return copy_stack(out, pid);
}
#else
static int copy_now(struct native_copy *out, pid_t pid, pid_t thread)
{
    (void)out, (void)pid, (void)thread;
    return -ENOTSUP;
}
#endif

/* Does not wait for the stop: a wait would take events from the code that reaps our children. Until
 * the thread has stopped, ptrace() says ESRCH. */
static int copy_when_stopped(const struct stop *stop)
{
    const struct timespec pause = {.tv_nsec = STOP_PAUSE_NS};
    const uint64_t until_ms = ct_deadline_ms(STOP_MS);
    int rc;

    if (ptrace(PTRACE_INTERRUPT, stop->thread, NULL, NULL) < 0)
        return -errno;
    while ((rc = copy_now(stop->out, stop->pid, stop->thread)) == -ESRCH &&
           ct_left_ms(until_ms) > 0)
        (void)nanosleep(&pause, NULL);
    return rc == -ESRCH ? -ETIMEDOUT : rc;
}

static void *stop_and_copy(void *context)
{
    struct stop *stop = context;

    if (ptrace(PTRACE_SEIZE, stop->thread, NULL, NULL) < 0) {
        stop->rc = -errno;
        return NULL;
    }
    stop->rc = copy_when_stopped(stop);
    /* Fails if the thread has not stopped; then the end of our own thread detaches it. */
    (void)ptrace(PTRACE_DETACH, stop->thread, NULL, NULL);
    return NULL;
}

/* The tracer is a separate thread: when it ends, for any reason, the kernel detaches the traced
 * thread. */
int native_copy_stopped(struct native_copy *out, pid_t pid, pid_t thread)
{
    struct stop stop = {.out = out, .pid = pid, .thread = thread};
    pthread_t tracer;
    const int rc = ct_thread_start(&tracer, stop_and_copy, &stop);

    if (rc < 0)
        return rc;
    (void)pthread_join(tracer, NULL);
    return stop.rc;
}
