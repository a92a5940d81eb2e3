/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that this node found out about a failure: texts with keys, which every node shows in the
 * order of the keys: "core       : none (ulimit -c 0; --core turns it on)". */
#pragma once

#include <stdint.h>

#include "worker_sdk/wire/message.h"

/* Adds a line; control characters become blanks. A line that does not fit any more is left out. */
__attribute__((format(printf, 3, 4))) void
facts_add(struct ct_failure *failure, enum ct_fact_key key, const char *fmt, ...);
/* "61 MiB", "1.5 GiB"; dst has FACTS_SIZE_MAX bytes. */
enum {
    FACTS_SIZE_MAX = 24
};
void facts_format_size(char *dst, uint64_t bytes);
