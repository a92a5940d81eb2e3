/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* Sets the pointer to a function at `function` to that of this name, or to NULL: then false. dlsym
 * returns an object pointer; POSIX promises that its bits are a function's. */
static inline bool ct_find_symbol(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}
