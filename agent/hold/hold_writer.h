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
    void *entry; /* returned with the result */
};

struct hold_writer_result {
    void *entry; /* NULL: the writer was given up */
    int code;    /* 0: it is on the disk, with this inode and time */
    uint64_t inode;
    uint64_t mtime_ns;
    char text[512];
};

struct hold_writer; /* a thread that writes one file */

/* NULL: out of memory, descriptor or thread. At its end a result is written to the pipe `done`. */
struct hold_writer *hold_writer_start(const struct hold_writer_job *job, int done);
/* The file gets no name any more, and the result is dropped. */
void hold_writer_give_up(struct hold_writer *writer);
/* Reads the next result from the pipe, without blocking, and frees its writer. False: there is
 * none. */
bool hold_writer_read(int done, struct hold_writer_result *out);
