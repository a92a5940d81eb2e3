/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as people write them: "0-3, 5". */
#ifndef AGENT_WATCH_RANK_LIST_H
#define AGENT_WATCH_RANK_LIST_H

#include <stddef.h>

/* `ranks` rise. Empty when it does not fit. */
void rank_list_format(char *dst, size_t size, const int *ranks, int count);

#endif
