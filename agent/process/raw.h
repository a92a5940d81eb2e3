/* SPDX-License-Identifier: Apache-2.0 */
/* System calls that do not touch errno: they return the result or a negative errno. For children
 * that share our memory (child.h), and so errno with the thread that started them, which runs at
 * the same time. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
static inline long raw_call(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long raw_call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;

    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3)
                     : "memory");
    return x0;
}
#else /* here a child is a copy, with its own errno */
static inline long raw_call(long number, long a, long b, long c, long d)
{
    const long result = syscall(number, a, b, c, d);

    return result < 0 ? -errno : result;
}
#endif

static inline long raw_pointer(const void *pointer)
{
    return (long)(intptr_t)pointer;
}
