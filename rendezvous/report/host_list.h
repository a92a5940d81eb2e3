/* SPDX-License-Identifier: Apache-2.0 */
/* A short list of host names for messages: missing nodes, nodes that have joined.
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
    size_t more; /* further hosts, for which there was no room */
    char hosts[HOST_LIST_MAX][CT_HOST_MAX];
};

void host_list_clear(struct host_list *list);
/* A name that is in the list is not added again. */
void host_list_add(struct host_list *list, const char *host);
void host_list_remove(struct host_list *list, const char *host);
/* "n2, n7 and 3 more"; empty text for an empty list. Cut where dst[size] ends. */
void host_list_format(const struct host_list *list, char *dst, size_t size);
