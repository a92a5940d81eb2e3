/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <unistd.h>

/* Closes *fd and sets it to -1, which stands for none. Async-signal-safe. */
static inline void ct_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}
