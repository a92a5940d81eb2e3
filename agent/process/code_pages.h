/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of programs and libraries that this process has mapped. Pages that only the start
 * needed are a megabyte or two of resident memory. A page that is needed again is read again by
 * the kernel, from memory as long as another process uses it. */
#pragma once

#include <stdbool.h>

/* Drops the pages of segments that are not writable; `with_libraries`: those of libraries, too,
 * the dynamic linker's included, which runs at the first call of a function. */
void code_pages_drop(bool with_libraries);
