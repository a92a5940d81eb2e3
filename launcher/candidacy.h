/* SPDX-License-Identifier: Apache-2.0 */
/* This node's part in the election of the rendezvous host: its server listens from the beginning
 * and turns everybody away until it is elected; its agent is told where the host is.
 *
 *     candidacy_create ── server with its gate and sink ── candidacy_start ── candidacy_stop
 *
 *     election's thread: elected ── server_lead     renewed, written ── gate, server_poke
 *                        deposed ── server_yield    host known ── candidacy_find_servers
 *     server's thread:   a step of the run ── sink ── election_write */
#ifndef LAUNCHER_CANDIDACY_H
#define LAUNCHER_CANDIDACY_H

#include "launcher/addresses.h"
#include "launcher/config.h"
#include "rendezvous/server.h"

struct candidacy;

/* `config` is kept. 0 or -ENOMEM. */
int candidacy_create(struct candidacy **out, const struct config *config,
                     struct ctrun_error *err);
/* For server_options; they live as long as the candidacy. */
struct gate *candidacy_gate(struct candidacy *candidacy);
const struct journal_sink *candidacy_sink(struct candidacy *candidacy);
/* The server, kept, listens at that port. Reaches etcd, saying so every ten seconds, for as long
 * as the configuration allows. 0, CTRUN_E_UNREACHABLE, _AUTH, _USAGE. */
int candidacy_start(struct candidacy *candidacy, struct server *server,
                    const struct addresses *addresses, uint16_t port,
                    struct ctrun_error *err);
/* Where the host is now; 0: nobody is. Any thread. */
size_t candidacy_find_servers(struct candidacy *candidacy, struct ct_addr *out,
                              size_t max);
/* The server must have ended (server_join), but be there: gives the place up. */
void candidacy_stop(struct candidacy *candidacy);
/* After the server is destroyed. NULL is fine. */
void candidacy_destroy(struct candidacy *candidacy);

#endif
