/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with the SDK that crashes as its first argument says, in place(), called by outer():
 *
 *   segv, bus, fpe, ill, abort   the signals themselves
 *   null       calls a null pointer
 *   sent       sends SIGSEGV to itself by kill()
 *   overflow   uses up its stack
 *   thread, thread_overflow   segv and overflow in a thread called "loader"
 *   both       two threads crash at once
 *   torn       overwrites its stack, then crashes
 *   lost       sets a wrong frame pointer, then crashes: code that follows it would crash, too
 *   child      a child that it has forked crashes; then it exits with 5
 *   handled    has a handler of its own, which ends it with 7
 *   later      installs one after ctrun_open()
 *   closed     crashes after ctrun_close()
 *   replaced   uses up its stack after ctrun_close(); handler and alternate stack are its own
 *
 * With a second argument it first reports step 1 and waits for the file of that name. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker_sdk/include/ctrun.h"

static struct ctrun_session *session;
static volatile int zero;
static int *volatile nothing = NULL;
static void (*volatile no_function)(void) = NULL;
static pthread_barrier_t together;

static __attribute__((noinline)) int overflow(volatile char *below)
{
    volatile char room[4096];

    room[0] = below ? below[0] : 0;
    if (zero != 0)
        return 0;
    return overflow(room) + room[0];
}

static __attribute__((noinline)) void tear(void)
{
    volatile unsigned long words[2];
    volatile unsigned long *at = words;

    for (int i = 0; i < 64;
         i++) /* saved registers and return addresses are nonsense now */
        at[i] = 0xdeadbeefdeadbeeful + (unsigned long)i;
    *nothing = 1;
}

static __attribute__((noinline)) void lose(void)
{
#if defined(__x86_64__)
    __asm__ volatile("movq $16, %rbp\n\tmovl $0, 0");
#elif defined(__aarch64__)
    __asm__ volatile("mov x29, #16\n\tstr wzr, [x29]");
#endif
    *nothing = 1;
}

static void map_nothing(void)
{
    FILE *file = tmpfile();
    volatile char *memory;

    if (!file)
        exit(98);
    memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    exit(98 + memory[0]);
}

static __attribute__((noinline)) int place(const char *how)
{
    if (strcmp(how, "segv") == 0)
        *nothing = 1;
    if (strcmp(how, "bus") == 0)
        map_nothing();
    if (strcmp(how, "fpe") == 0)
        return 10 / zero;
    if (strcmp(how, "ill") == 0)
        __builtin_trap();
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "null") == 0)
        no_function();
    if (strcmp(how, "sent") == 0)
        kill(getpid(), SIGSEGV);
    if (strcmp(how, "overflow") == 0)
        return overflow(NULL);
    if (strcmp(how, "torn") == 0)
        tear();
    if (strcmp(how, "lost") == 0)
        lose();
    return 99;
}

__attribute__((noinline)) int outer(const char *how);
__attribute__((noinline)) int outer(const char *how)
{
    return place(how) + zero;
}

static void *run_thread(void *context)
{
    const char *const *how = context;

    (void)prctl(PR_SET_NAME, "loader", 0, 0, 0);
    if (ctrun_crash_report(session, NULL) < 0)
        exit(97);
    (void)pthread_barrier_wait(&together);
    exit(outer(*how));
}

static int in_threads(int count, const char *how)
{
    pthread_t threads[2];

    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run_thread, &how);
    pthread_join(threads[0], NULL);
    return 99;
}

static int in_child(const char *how)
{
    const pid_t pid = fork();
    int status = 0;

    if (pid == 0)
        exit(outer(how));
    (void)waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? 5 : 99;
}

static void on_signal(int signal)
{
    (void)signal;
    _exit(7);
}

static int with_own_stack(void)
{
    static char memory[64 * 1024];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

    if (sigaltstack(&stack, NULL) < 0 || sigaction(SIGSEGV, &action, NULL) < 0)
        return 98;
    ctrun_close(session);
    return outer("overflow");
}

static void await(const char *path)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    ctrun_step(session, 1);
    for (int i = 0; i < 60000 && access(path, F_OK) < 0; i++)
        (void)nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "segv";
    struct ctrun_error err;

    if (strcmp(how, "handled") == 0)
        (void)signal(SIGSEGV, on_signal);
    if (ctrun_open(&session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    if (argc > 2)
        await(argv[2]);
    if (strcmp(how, "later") == 0)
        (void)signal(SIGSEGV, on_signal);
    if (strcmp(how, "handled") == 0 || strcmp(how, "later") == 0)
        return outer("segv");
    if (strcmp(how, "closed") == 0) {
        ctrun_close(session);
        return outer("segv");
    }
    if (strcmp(how, "replaced") == 0)
        return with_own_stack();
    if (strcmp(how, "thread") == 0)
        return in_threads(1, "segv");
    if (strcmp(how, "thread_overflow") == 0)
        return in_threads(1, "overflow");
    if (strcmp(how, "both") == 0)
        return in_threads(2, "segv");
    if (strcmp(how, "child") == 0)
        return in_child("segv");
    return outer(how);
}
