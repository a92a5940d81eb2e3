/* SPDX-License-Identifier: Apache-2.0 */
/* glibc has no clone3(), and its clone() knows neither cgroups nor CLONE_CLEAR_SIGHAND. */
#include "agent/process/child.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/process/raw.h"
#include "worker_sdk/base/kernel.h"

/* The child begins on a stack of its own, which has no return address: it calls main. */
#if defined(__x86_64__) && !defined(CHILD_IS_COPY)
static long clone_child(struct ct_clone_args *args, child_main *main, void *context)
{
    register void *r8 __asm__("r8") = context;
    long pid;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t" /* debuggers: the outermost frame */
                     "mov %%r8, %%rdi\n\t"
                     "call *%%rdx\n\t"
                     "ud2\n"
                     "1:"
                     : "=a"(pid)
                     : "a"((long)CT_SYS_clone3), "D"(args), "S"(sizeof *args),
                       "d"(main), "r"(r8)
                     : "rcx", "r11", "memory");
    return pid;
}
#elif defined(__aarch64__) && !defined(CHILD_IS_COPY)
static long clone_child(struct ct_clone_args *args, child_main *main, void *context)
{
    register long x8 __asm__("x8") = CT_SYS_clone3;
    register long x0 __asm__("x0") = raw_pointer(args);
    register size_t x1 __asm__("x1") = sizeof *args;
    register child_main *x2 __asm__("x2") = main;
    register void *x3 __asm__("x3") = context;

    __asm__ volatile("svc 0\n\t"
                     "cbnz x0, 1f\n\t"
                     "mov x29, xzr\n\t" /* debuggers: the outermost frame */
                     "mov x30, xzr\n\t"
                     "mov x0, x3\n\t"
                     "blr x2\n\t"
                     "brk 0\n"
                     "1:"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3)
                     : "memory");
    return x0;
}
#else
/* The child is a copy, with a copy of our stack: on other processors, or under a sanitizer. */
static long clone_child(struct ct_clone_args *args, child_main *main, void *context)
{
    long pid;

    args->flags &= ~CT_CLONE_VM;
    args->stack = args->stack_size = 0;
    pid = raw_call(CT_SYS_clone3, raw_pointer(args), sizeof *args, 0, 0);
    if (pid == 0)
        main(context);
    return pid;
}
#endif

static void reset_handlers(void)
{
    struct sigaction action;

    for (int i = 1; i < NSIG; i++) {
        if (sigaction(i, NULL, &action) < 0 || action.sa_handler == SIG_DFL ||
            action.sa_handler == SIG_IGN)
            continue;
        memset(&action, 0, sizeof action);
        action.sa_handler = SIG_DFL;
        (void)sigaction(i, &action, NULL);
    }
}

/* Without clone3(). All signals are blocked until no handler of ours can run in the child. */
static pid_t fork_child(child_main *main, void *context)
{
    sigset_t all;
    sigset_t mask;
    pid_t pid;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid = fork();
    if (pid < 0)
        pid = -errno;
    if (pid == 0)
        reset_handlers();
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (pid == 0)
        main(context);
    return pid;
}

/* CTRUN_CLONE3=0, for a kernel or sandbox in which clone3() does harm. */
static bool is_switched_off(void)
{
    const char *text = getenv(CHILD_ENV_CLONE3);

    return text && strcmp(text, "0") == 0;
}

pid_t child_start(child_main *main, void *context, void *stack, size_t size, int cgroup)
{
    struct ct_clone_args args = {
        .flags = CT_CLONE_VM | CT_CLONE_CLEAR_SIGHAND,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = size,
    };
    long pid;

    if (cgroup >= 0) {
        args.flags |= CT_CLONE_INTO_CGROUP;
        args.cgroup = (uint32_t)cgroup;
    }
    pid = is_switched_off() ? -ENOSYS : clone_child(&args, main, context);
    return pid < 0 && cgroup < 0 ? fork_child(main, context) : (pid_t)pid;
}
