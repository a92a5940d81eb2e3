/* SPDX-License-Identifier: Apache-2.0 */
/* The code that a live process has mapped, and its ELF files. */
#pragma once

#include <sys/types.h>

#include "agent/native/cfi.h"

enum {
    NATIVE_MAPS_MAX = 16384,
    NATIVE_MODULE_ID_MAX = 48
};

struct native_module {
    char id[NATIVE_MODULE_ID_MAX]; /* device and inode: one file for all processes */
    uint64_t inode;
    uint64_t start; /* start of the mapping in which it was seen first */
    char *path;     /* owned */
    bool is_tried, is_open;
    int fd; /* -1: its bytes are in the memory of the process */
    pid_t pid;
    struct cfi_file file; /* valid if is_open */
};

struct native_modules {
    pid_t pid;
    int map_count, module_count;
    struct native_map {
        uint64_t start, end, offset;
        int module;
    } * maps;                       /* maps of code only, ascending; owned */
    struct native_module **modules; /* each on the heap; owned */
};

/* 0, -EPERM, -ESRCH or -ENOMEM. Reads the maps of this moment. */
int native_modules_open(struct native_modules *out, pid_t pid);
void native_modules_close(struct native_modules *modules);
/* The module whose code is at that address; NULL: none. *offset: in its file. */
struct native_module *native_modules_find(const struct native_modules *modules,
                                          uint64_t address, uint64_t *offset);
/* Opens the file at the first call; false: it is gone, or cannot be read. */
bool native_module_use(struct native_module *module);
