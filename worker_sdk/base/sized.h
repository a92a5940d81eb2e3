/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that begin with their size, so that they can grow: the program was built with
 * one size, the library with another, and either may be the older one.
 *
 * Members are only ever added at the end, where they raise the size (not into padding: an older
 * caller left that as it was); an added member that the caller does not have gets the value of the
 * _INIT macro. Members of a newer caller beyond our size are ignored: this library does not know
 * them. Pure; any thread. */
#pragma once

#include <stddef.h>

#include "worker_sdk/include/ctrun.h"

enum {
    CT_SIZED_MAX_BYTES = 4096 /* a larger value is no real size */
};

/* Copies *src over the defaults in *dst (dst_size bytes); the size in *dst stays. -EINVAL: src has
 * an impossible size; the message names `what` ("CTRUN_OPTIONS_INIT") as the remedy. */
int ct_sized_read(void *dst, size_t dst_size, const void *src, const char *what,
                  struct ctrun_error *err);
/* The same for `count` elements, each of the size of the first. *out is allocated, NULL for none:
 * free() it. `defaults` is one element. -ENOMEM, -EINVAL. */
int ct_sized_read_array(void **out, const void *defaults, size_t size, const void *src,
                        size_t count, const char *what, struct ctrun_error *err);
/* Copies src (src_size bytes) to the caller's *dst, up to the size in *dst, which stays. */
int ct_sized_write(void *dst, const void *src, size_t src_size, const char *what,
                   struct ctrun_error *err);
