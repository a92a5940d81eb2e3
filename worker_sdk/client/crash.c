/* SPDX-License-Identifier: Apache-2.0 */
/* The handler does the risky part last and can recover from it: if the handler itself crashes, or
 * hangs for RESCUE_MS (a timer then sends the same signal again), siglongjmp() returns to
 * write_record(), and the process ends with what the record holds by then. A thread that crashes
 * while another one writes the record waits, RESCUE_MS at most.
 *
 * The signal is sent again to this thread with its original siginfo and takes effect when the
 * handler returns: the core file shows the registers of the crash, not ours. */
#include "worker_sdk/client/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/client/shared.h"
#include "worker_sdk/wire/crash.h"

enum {
    STACK_BYTES = 64 * 1024, /* the unwinder needs about 10 KiB */
    RESCUE_MS = 2000
};

#ifndef sigev_notify_thread_id /* glibc before 2.38 */
#define sigev_notify_thread_id _sigev_un._tid
#endif

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
enum {
    SIGNAL_COUNT = sizeof signals / sizeof *signals
};

/* State of the handler; set up before the handler is installed. */
static struct {
    struct ct_crash *record;
    int fd;
    int users;
    pid_t pid;            /* the process that owns the record */
    _Atomic pid_t writer; /* the thread that crashed first; 0: none */
    sigjmp_buf net;       /* where the writer resumes after a crash of its own */
    _Atomic bool has_net;
} armed = {.fd = -1};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t stack_key; /* a thread's alternate stack, if it is ours */
static bool has_key;

/* ---- In the handler ------------------------------------------------------------------- */

static pid_t thread_id(void)
{
    return (pid_t)syscall(SYS_gettid);
}

static void fill_crash_set(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < SIGNAL_COUNT; i++)
        sigaddset(set, signals[i]);
}

/* If the code that follows hangs, this thread gets `signal` again. */
static void set_rescue(int signal)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal};
    const struct itimerspec once = {.it_value = {.tv_sec = RESCUE_MS / 1000}};
    int timer; /* the kernel's timer id */

    event.sigev_notify_thread_id = thread_id();
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0)
        (void)syscall(SYS_timer_settime, timer, 0, &once, NULL);
}

static void write_head(struct ct_crash *record, int signal, const siginfo_t *info)
{
    record->signal = signal;
    record->code = info->si_code;
    record->pid = armed.pid;
    record->tid = thread_id();
    record->address = info->si_code > 0 ? (uint64_t)(uintptr_t)info->si_addr
                                        : (uint64_t)info->si_pid;
    (void)prctl(PR_GET_NAME, record->thread, 0, 0, 0);
    record->state = CT_CRASH_BEGUN;
}

static void write_modules(struct ct_crash *record)
{
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (maps < 0)
        return;
    ct_crash_find_modules(record, maps);
    close(maps);
}

static void write_record(int signal, const siginfo_t *info, void *context)
{
    sigset_t crashes;

    write_head(armed.record, signal, info);
    fill_crash_set(&crashes);
    if (sigsetjmp(armed.net, 1) == 0) {
        armed.has_net = true;
        set_rescue(signal);
        /* else no second signal arrives */
        (void)pthread_sigmask(SIG_UNBLOCK, &crashes, NULL);
        ct_crash_walk(armed.record, armed.fd, context);
    }
    armed.has_net = false;
    (void)pthread_sigmask(SIG_BLOCK, &crashes, NULL);
    write_modules(armed.record);
    armed.record->state = CT_CRASH_COMPLETE;
}

static void wait_for_writer(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < RESCUE_MS && armed.record->state != CT_CRASH_COMPLETE; i++)
        (void)nanosleep(&pause, NULL);
}

/* Restores the default action of `signal` and sends the signal again. */
static void pass_on(int signal, siginfo_t *info)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    const pid_t pid = getpid();

    (void)sigaction(signal, &by_default, NULL);
    if (syscall(SYS_rt_tgsigqueueinfo, pid, thread_id(), signal, info) < 0)
        (void)syscall(SYS_tgkill, pid, thread_id(), signal);
}

static void on_crash(int signal, siginfo_t *info, void *context)
{
    const int before = errno;
    pid_t writer = 0;

    if (armed.pid == getpid()) {
        if (atomic_compare_exchange_strong(&armed.writer, &writer, thread_id()))
            write_record(signal, info, context);
        else if (writer != thread_id())
            wait_for_writer();
        else if (armed.has_net)
            siglongjmp(armed.net, 1);
    }
    pass_on(signal, info);
    errno = before;
}

/* ---- The alternate stack --------------------------------------------------------------- */

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* At the end of a thread, which runs on its normal stack now. An alternate stack that replaced ours
 * (faulthandler) stays. */
static void free_stack(void *memory)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    stack_t now;

    if (sigaltstack(NULL, &now) == 0 && now.ss_sp == (char *)memory + page_bytes())
        (void)sigaltstack(&none, NULL);
    (void)munmap(memory, STACK_BYTES + page_bytes());
}

static void make_key(void)
{
    has_key = pthread_key_create(&stack_key, free_stack) == 0;
}

/* Below the stack is a guard page: an overflow of the handler itself is a crash, too. */
int ct_crash_give_stack(void)
{
    stack_t stack;
    char *memory;

    (void)pthread_once(&key_once, make_key);
    if (!has_key || sigaltstack(NULL, &stack) < 0)
        return -EAGAIN;
    if (!(stack.ss_flags & SS_DISABLE))
        return 0; /* the thread has an alternate stack, ours or another */
    memory = mmap(NULL, STACK_BYTES + page_bytes(), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    (void)mprotect(memory, page_bytes(), PROT_NONE);
    stack = (stack_t){.ss_sp = memory + page_bytes(), .ss_size = STACK_BYTES};
    if (pthread_setspecific(stack_key, memory) != 0 || sigaltstack(&stack, NULL) < 0) {
        (void)pthread_setspecific(stack_key, NULL);
        (void)munmap(memory, STACK_BYTES + page_bytes());
        return -ENOMEM;
    }
    return 0;
}

static void take_stack(void)
{
    void *memory = has_key ? pthread_getspecific(stack_key) : NULL;

    if (!memory)
        return;
    (void)pthread_setspecific(stack_key, NULL);
    free_stack(memory);
}

/* ---- Arming ---------------------------------------------------------------------------- */

static int make_record(void)
{
    void *memory;
    const int fd = ct_shared_create(&memory, "ctrun-crash", sizeof *armed.record,
                                    MAP_POPULATE);

    if (fd < 0)
        return fd;
    armed.record = memory;
    armed.record->version = CT_CRASH_VERSION;
    armed.record->magic = CT_CRASH_MAGIC;
    armed.fd = fd;
    armed.pid = getpid();
    armed.writer = 0;
    return 0;
}

/* In a child the number may belong to another descriptor by now, so it is not closed. */
static void free_record(void)
{
    if (armed.record)
        (void)munmap(armed.record, sizeof *armed.record);
    if (armed.fd >= 0 && armed.pid == getpid())
        close(armed.fd);
    armed.record = NULL;
    armed.fd = -1;
    armed.users = 0;
}

static void install(void)
{
    struct sigaction ours = {.sa_sigaction = on_crash,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction theirs;

    fill_crash_set(&ours.sa_mask);
    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (sigaction(signals[i], NULL, &theirs) == 0 && theirs.sa_handler == SIG_DFL)
            (void)sigaction(signals[i], &ours, NULL);
}

static void uninstall(void)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    struct sigaction now;

    for (int i = 0; i < SIGNAL_COUNT; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
            now.sa_sigaction == on_crash)
            (void)sigaction(signals[i], &by_default, NULL);
}

int ct_crash_arm(void)
{
    int rc = 0;

    pthread_mutex_lock(&mutex);
    if (armed.record && armed.pid != getpid())
        free_record(); /* inherited from our parent */
    if (!armed.record && (rc = make_record()) == 0) {
        ct_crash_warm_up();
        install();
    }
    if (rc == 0) {
        armed.users++;
        rc = armed.fd;
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

void ct_crash_disarm(void)
{
    pthread_mutex_lock(&mutex);
    if (armed.users > 0 && --armed.users == 0) {
        uninstall();
        take_stack();
        free_record();
    }
    pthread_mutex_unlock(&mutex);
}
