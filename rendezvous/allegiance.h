/* SPDX-License-Identifier: Apache-2.0 */
/* The host's half of worker_sdk/wire/takeover.h: which members of a round follow it for certain,
 * and whether the others could go on without it. Pure.
 *
 *     allegiance_begin ── allegiance_hear, allegiance_is_sure ... ── allegiance_is_over ── end
 *
 * Nothing begun: it is always sure. */
#ifndef RENDEZVOUS_ALLEGIANCE_H
#define RENDEZVOUS_ALLEGIANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allegiance_entry {
    uint64_t key;
    uint64_t proof_ms; /* it followed then, by our clock; 0: never proven */
    bool
        is_bound; /* ours, or has left, or has a later START: cannot go on with this one */
    bool is_elsewhere; /* it has gone on with another server, whatever it says now */
    bool is_here;      /* for allegiance_may_start() */
};

struct allegiance {
    uint64_t generation;
    uint64_t last_generation; /* of the last world of this server */
    uint32_t min_nodes;
    bool is_heir; /* we are not the host of that round: then ours must be the group */
    size_t count; /* 0: nothing is begun */
    struct allegiance_entry *entries; /* by group rank; owned */
};

struct ct_heritage;
/* The members by their keys, of which nobody is proven. is_heir: in another one's place. 0 or
 * -ENOMEM (then nothing is begun). */
int allegiance_begin(struct allegiance *allegiance, const struct ct_heritage *heritage,
                     bool is_heir);
void allegiance_end(struct allegiance *allegiance);
/* NULL: not of this round. */
struct allegiance_entry *allegiance_find(const struct allegiance *allegiance,
                                         uint64_t key);
/* It followed at time_ms, and had the START of `generation`. */
void allegiance_hear(struct allegiance *allegiance, uint64_t key, uint64_t time_ms,
                     uint64_t generation);
/* Another server has given it a world after this one's. */
void allegiance_lose(struct allegiance *allegiance, uint64_t key);
/* It ends: it will follow nobody. */
void allegiance_release(struct allegiance *allegiance, uint64_t key);
/* With those that were heard of in limit_ms we may go on, and nobody without them. */
bool allegiance_is_sure(const struct allegiance *allegiance, uint64_t now_ms,
                        uint64_t limit_ms);
/* The same of those and of those that are not here. */
bool allegiance_may_start(const struct allegiance *allegiance, uint64_t now_ms,
                          uint64_t limit_ms);
/* Nobody can go on with this roster any more, heard of or not. */
bool allegiance_is_over(const struct allegiance *allegiance);

#endif
