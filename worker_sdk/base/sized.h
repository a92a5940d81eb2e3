/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that begin with their size, so that they can grow: the program was built with
 * one size, the library with another, and either may be the older one.
 *
 * Members are only ever added at the end, where they raise the size (not into padding: an older
 * caller left that as it was); an added member that the caller does not have gets
 * the value of the _INIT macro. What a newer caller has beyond our size is not looked at: this
 * library does not know it. Pure; any thread. */
#pragma once

#include <stddef.h>

#include "worker_sdk/include/ctrun.h"

enum {
    CT_SIZED_MAX_BYTES = 4096 /* more is not a size that somebody set on purpose */
};

/* Reads *src over the defaults that *dst (dst_size bytes) holds; dst's own size stays. -EINVAL
 * when src has no size that can be one, with `what` ("CTRUN_OPTIONS_INIT") as the remedy. */
int ct_sized_read(void *dst, size_t dst_size, const void *src, const char *what,
                  struct ctrun_error *err);
/* The same for `count` elements, each of the size of the first. *out is allocated, NULL for none:
 * free() it. `defaults` is one element. -ENOMEM, -EINVAL. */
int ct_sized_read_array(void **out, const void *defaults, size_t size, const void *src,
                        size_t count, const char *what, struct ctrun_error *err);
/* Writes src (src_size bytes) to the caller's *dst as far as its size goes; its size stays. */
int ct_sized_write(void *dst, const void *src, size_t src_size, const char *what,
                   struct ctrun_error *err);
