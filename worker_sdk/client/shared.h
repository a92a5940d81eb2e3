/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the agent reads as well, also after this process has ended. */
#pragma once

#include <stddef.h>

/* Maps `bytes` of zeros at *out, which munmap() frees. Returns the descriptor to send to the agent,
 * which we must close, or -errno. flags: additional flags for mmap(), or 0. */
int ct_shared_create(void **out, const char *name, size_t bytes, int flags);
