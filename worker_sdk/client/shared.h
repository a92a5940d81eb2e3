/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the agent reads, too, after this process is gone as well. */
#pragma once

#include <stddef.h>

/* `bytes` of zeros in *out, which munmap() frees, and the descriptor to send to the agent: ours to close; or
 * -errno. flags: more of mmap()'s, or 0. */
int ct_shared_create(void **out, const char *name, size_t bytes, int flags);
