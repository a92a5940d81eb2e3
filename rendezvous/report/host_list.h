/* SPDX-License-Identifier: Apache-2.0 */
/* A short list of host names for people: who is missing, who has joined.
 *
 * Keeps the first HOST_LIST_MAX and counts the rest. Pure. */
#pragma once

#include <stddef.h>

#include "worker_sdk/net/addr.h"

enum {
    HOST_LIST_MAX = 16
};

struct host_list {
    size_t count;
    size_t more; /* others, whose names found no room */
    char hosts[HOST_LIST_MAX][CT_HOST_MAX];
};

void host_list_clear(struct host_list *list);
/* Each name once. */
void host_list_add(struct host_list *list, const char *host);
void host_list_remove(struct host_list *list, const char *host);
/* "n2, n7 and 3 more"; empty text for an empty list. Cut where dst[size] ends. */
void host_list_format(const struct host_list *list, char *dst, size_t size);
