/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that came and are not here: when they were seen last, and why they are away. For people.
 *
 * Keeps the first CONTACTS_MAX and counts the rest, for anybody may invent any number of names. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/wire/message.h"

enum {
    CONTACTS_MAX = 16,
    CONTACTS_WHY_MAX = 128
};

struct contact {
    char host[CT_HOST_MAX];
    char why[CONTACTS_WHY_MAX]; /* "refused: E_AUTH, ..." */
    uint64_t at_ms;
    bool is_refused;
};

struct contacts {
    size_t count;
    size_t more; /* others, that found no room */
    struct contact list[CONTACTS_MAX];
};

/* Of a host that is known already the last contact counts. */
void contacts_note(struct contacts *contacts, const char *host, const char *why,
                   bool is_refused, uint64_t now_ms);
void contacts_remove(struct contacts *contacts, const char *host);
/* NULL: none. Borrowed until the next change. */
const struct contact *contacts_find(const struct contacts *contacts, const char *host);
/* "node3" is "node3.cluster", but not "node3.other" beside "node3.cluster". */
bool contacts_is_same_host(const char *a, const char *b);
