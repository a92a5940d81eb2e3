/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that may use a worker store: the addresses of the nodes of its round, and this machine.
 *
 *     allow_list_add, allow_list_add ... ── allow_list_seal ── allow_list_has
 *
 * Until the list is sealed the nodes of the round are not known: connections wait. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/net/addr.h"

enum {
    /* Twice ROUND_NODES_MAX: 2 MiB. */
    ALLOW_LIST_MAX = 128 * 1024
};

struct allow_list {
    uint8_t (*keys)[16]; /* ct_addr_key(); sorted once sealed */
    size_t count;
    size_t capacity;
    bool is_sealed;
};

/* 0, -ENOBUFS, -ENOMEM. After allow_list_seal(): begins a new list. */
int allow_list_add(struct allow_list *list, const uint8_t (*keys)[16], size_t count);
void allow_list_seal(struct allow_list *list);
/* True for an address of the list, and for a connection from this machine: over loopback, or with
 * the same address at both ends. `local` is our end. */
bool allow_list_has(const struct allow_list *list, const struct ct_addr *remote,
                    const struct ct_addr *local);
void allow_list_deinit(struct allow_list *list);
