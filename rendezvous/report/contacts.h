/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that have connected and are absent: when they were last seen, and why they are absent. For
 * messages.
 *
 * Keeps the first CONTACTS_MAX and counts the rest, as a client may invent any number of names. A client that has proven
 * nothing has one entry per address, which makes room for a node that has.
 * Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/wire/message.h"

enum {
    CONTACTS_MAX = 16,
    CONTACTS_WHY_MAX = 128
};

struct contact {
    char host[CT_HOST_MAX];
    char address[CT_ADDR_TEXT_MAX]; /* where it has proven nothing; else empty */
    char why[CONTACTS_WHY_MAX];     /* "refused: E_AUTH, ..." */
    uint64_t at_ms;
    bool is_explained; /* with the reason while the run waits, too */
};

struct contacts {
    size_t count;
    size_t more; /* further nodes, for which there was no room */
    bool
        has_uncounted; /* others may have connected that are neither listed nor counted */
    struct contact list[CONTACTS_MAX];
};

/* True if contacts_note() lists this host. */
bool contacts_has_room(const struct contacts *contacts, const char *host);
/* For a host, or an address, that is known already the last contact counts. address: of a client that has proven nothing;
 * else NULL. */
void contacts_note(struct contacts *contacts, const char *host, const char *address,
                   const char *why, bool is_explained, uint64_t now_ms);
void contacts_remove(struct contacts *contacts, const char *host);
/* NULL: none. Borrowed until the next change. */
const struct contact *contacts_find(const struct contacts *contacts, const char *host);
/* "node3" equals "node3.cluster"; "node3.other" does not equal "node3.cluster". */
bool contacts_is_same_host(const char *a, const char *b);
