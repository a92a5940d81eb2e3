/* SPDX-License-Identifier: Apache-2.0 */
/* The functions at addresses in ELF files, each looked up once for all threads and processes of a
 * request. */
#pragma once

#include "agent/native/native_modules.h"

enum {
    NATIVE_NAMES_MAX = 4096, /* addresses; more get no name */
    NATIVE_NAME_MAX = 128
};

struct native_names {
    int count;
    struct native_name {
        char module[NATIVE_MODULE_ID_MAX]; /* empty: a free slot */
        uint64_t offset;
        char text[NATIVE_NAME_MAX]; /* readable name; empty: none */
    } slots[2 * NATIVE_NAMES_MAX];
};

/* Looks up those of places[count] (addresses of the process) that are not known yet, until
 * until_ms: reading the symbols of a large library takes some milliseconds. */
void native_names_find(struct native_names *names, const struct native_modules *modules,
                       const uint64_t *places, int count, uint64_t until_ms);
/* The function at the offset; "" if none is known. Borrowed. */
const char *native_names_get(const struct native_names *names,
                             const struct native_module *module, uint64_t offset);
