/* SPDX-License-Identifier: Apache-2.0 */
/* Where the core file of a dead worker is, or why there is none (core(5)). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct core_file {
    const char *pattern; /* of /proc/sys/kernel/core_pattern */
    bool has_pid;        /* /proc/sys/kernel/core_uses_pid */
    bool is_dumped;      /* WCOREDUMP() */
    uint64_t soft;       /* its limit of core files, as far as we know */
    uint64_t hard;
    pid_t pid;
    int signal;
    const char *program; /* argv[0] */
    const char *host;
    const char *directory; /* the folder that it was started in */
};

/* "/data/core.812", "handed to systemd-coredump: coredumpctl info 812", "none (ulimit -c 0;
 * --core turns it on)". Pure, except that it checks whether the file exists. */
void core_file_describe(char *dst, size_t size, const struct core_file *core);
/* The same for a child of this process; is_raised: with --core. */
void core_file_find(char *dst, size_t size, pid_t pid, int signal, bool is_dumped,
                    bool is_raised, const char *program);
