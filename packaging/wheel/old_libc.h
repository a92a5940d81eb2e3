/* SPDX-License-Identifier: Apache-2.0 */
/* What libctrun calls and glibc 2.17 does not have, for builds of the wheel: included before everything
 * else (-include). Each has the meaning of the function that it stands for. */
#pragma once

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __GLIBC__
static inline void *ctrun_old_reallocarray(void *old, size_t count, size_t each)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, each, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(old, bytes);
}
#define reallocarray ctrun_old_reallocarray

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC       1u
#define MFD_ALLOW_SEALING 2u
#endif
static inline int ctrun_old_memfd(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}
#define memfd_create ctrun_old_memfd

static inline ssize_t ctrun_old_getrandom(void *out, size_t bytes, unsigned flags)
{
    return syscall(SYS_getrandom, out, bytes, flags);
}
#define getrandom ctrun_old_getrandom

/* The asm reads the zeros, so that the compiler does not remove memset(). */
static inline void ctrun_old_bzero(void *data, size_t bytes)
{
    memset(data, 0, bytes);
    __asm__ volatile("" : : "r"(data) : "memory");
}
#define explicit_bzero ctrun_old_bzero
#endif
