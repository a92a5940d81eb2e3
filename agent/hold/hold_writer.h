/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that write memory into files (worker_sdk/ckpt/durable.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

struct hold_writer_job {
    int memory, folder; /* copied */
    const char *name;   /* copied */
    uint64_t bytes;
    uint32_t crc;
    bool (*may_write)(void);
    void *entry; /* comes back */
};

struct hold_writer_result {
    void *entry; /* NULL: it was given up */
    int code;    /* 0: it is on the disk, as this file */
    uint64_t inode;
    uint64_t mtime_ns;
    char text[512];
};

struct hold_writer; /* one that writes */

/* NULL: no memory, descriptor or thread. It ends with a result in the pipe `done`. */
struct hold_writer *hold_writer_start(const struct hold_writer_job *job, int done);
/* Nothing is named any more, and nobody hears of it. */
void hold_writer_give_up(struct hold_writer *writer);
/* The next one of the pipe, which does not block; frees it. False: there is none. */
bool hold_writer_read(int done, struct hold_writer_result *out);
