/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use a worker store: the addresses of the nodes of its round, and this machine.
 *
 *     guest_list_add, guest_list_add ... ── guest_list_seal ── guest_list_has
 *
 * Until it is sealed nobody knows who belongs to the round: connections wait. Pure. */
#ifndef RENDEZVOUS_GUEST_LIST_H
#define RENDEZVOUS_GUEST_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/addr.h"

enum {
    /* Twice ROUND_NODES_MAX: 2 MiB. */
    GUEST_LIST_MAX = 128 * 1024
};

struct guest_list {
    uint8_t (*keys)[16]; /* ct_addr_key(); sorted once sealed */
    size_t count;
    size_t capacity;
    bool is_sealed;
};

/* 0, -ENOBUFS, -ENOMEM. After the seal: begins a new list. */
int guest_list_add(struct guest_list *list, const uint8_t (*keys)[16], size_t count);
void guest_list_seal(struct guest_list *list);
/* True for an address of the list, and for a connection that began on this very machine: over
 * loopback, or from one address to the same. `local` is our end of it. */
bool guest_list_has(const struct guest_list *list, const struct ct_addr *remote,
                    const struct ct_addr *local);
void guest_list_deinit(struct guest_list *list);

#endif
