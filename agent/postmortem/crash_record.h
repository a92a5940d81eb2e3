/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's record of its crash (wire/crash.h). It is not trusted: it may be incomplete, and
 * any process may have written it. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/wire/crash.h"

enum {
    CRASH_PATH_MAX = 512,
    CRASH_NAME_MAX = 96,
};

/* An executable mapping, as /proc/PID/maps had it. */
struct crash_module {
    uint64_t start;
    uint64_t end;
    uint64_t offset; /* offset of start in the file */
    uint32_t device_major;
    uint32_t device_minor;
    uint64_t inode;
    char path[CRASH_PATH_MAX]; /* "[vdso]"; empty: memory without a file */
};

struct crash_frame {
    uint64_t pc;
    int module; /* number of its module; -1: in none */
    /* of pc, in the addresses of the module's file; 0: unknown */
    uint64_t address;
    char function[CRASH_NAME_MAX]; /* empty: unknown */
    uint64_t function_offset;      /* offset of pc in the function */
};

struct crash_record {
    int signal;
    int code; /* si_code */
    int pid;
    int tid;
    uint64_t address;
    uint64_t stack;
    char thread[CT_CRASH_THREAD_MAX + 1];
    int frame_count;
    int module_count;
    struct crash_frame frames[CT_CRASH_FRAMES_MAX];
    struct crash_module modules[CT_CRASH_FRAMES_MAX];
};

/* 0; -ENOENT when there was no crash; -EBADMSG when the bytes are no such record. */
int crash_record_decode(const void *bytes, size_t size, struct crash_record *out);
/* The address to look the frame up with: for all frames but the first, the pc is behind a call,
 * which may be the last instruction of its function. */
uint64_t crash_record_lookup(const struct crash_record *record, int frame);
/* "address 0x10: nothing is mapped there; thread 812 (loader)". */
void crash_record_describe(const struct crash_record *record, char *dst, size_t size);
/* "train_step+0x1c (train)", "train+0x11c9", "0x7f52a0 (memory of no file)". */
void crash_record_format_frame(const struct crash_record *record, int frame, char *dst,
                               size_t size);
