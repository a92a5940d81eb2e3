/* SPDX-License-Identifier: Apache-2.0 */
/* This node's part in the election of the rendezvous server: its server listens from the beginning
 * and refuses all agents until it is elected; its agent is told where the server is.
 *
 *     leader_candidate_create ── server with its output commit and sink ── leader_candidate_start ── leader_candidate_stop
 *
 *     election's thread: elected ── server_lead     renewed, written ── output commit, server_poke
 *                        lease lost ── server_step_down    server known ── leader_candidate_find_servers
 *     server's thread:   a step of the run ── sink ── election_write
 *
 * With --ha the first server serves before there is an etcd:
 *
 *     leader_candidate_create ── leader_candidate_serve ── leader_candidate_use, _start ── it is elected: from now on the
 *     output commit and the journal are etcd's ── leader_candidate_commit ── and from now on for good */
#pragma once

#include "launcher/config/config.h"
#include "launcher/net/addresses.h"
#include "rendezvous/server/server.h"

struct leader_candidate;

/* `config` is kept; its etcd is used unless leader_candidate_use() names another. 0 or -ENOMEM. */
int leader_candidate_create(struct leader_candidate **out, const struct config *config,
                            struct ctrun_error *err);
/* This etcd, the run's own, before leader_candidate_start(). */
void leader_candidate_use(struct leader_candidate *candidate,
                          const struct etcd_config *etcd);
/* The run's own etcd has these members now. Any thread. */
void leader_candidate_set_members(struct leader_candidate *candidate,
                                  const struct etcd_config *etcd);
/* Serves without an etcd: the server, kept, may send without a lease. Before server_lead(). */
void leader_candidate_serve(struct leader_candidate *candidate, struct server *server);
/* Ends leader_candidate_serve(): this node has founded no run, and may be elected from now on. Call
 * server_step_down() before: a step of the server would be written to an etcd, and there is none. */
void leader_candidate_stand_down(struct leader_candidate *candidate);
/* True once this node is elected, its output is bound to the lease, and the journal is in etcd.
 * From then on other nodes may be told of the etcd: this node serves for as long as it is
 * elected. */
bool leader_candidate_commit(struct leader_candidate *candidate);
/* Ends the election; continues as after leader_candidate_serve(), if nothing was committed. */
void leader_candidate_revert(struct leader_candidate *candidate);
/* Elected, and not by leader_candidate_serve() alone. Any thread. */
bool leader_candidate_leads(struct leader_candidate *candidate);
/* For server_options; they live as long as the candidate. */
struct output_commit *
leader_candidate_output_commit(struct leader_candidate *candidate);
const struct journal_sink *leader_candidate_sink(struct leader_candidate *candidate);
/* The server, kept, listens at that port. Reaches etcd, saying so every ten seconds, for as long
 * as the configuration allows. 0, CTRUN_E_UNREACHABLE, _AUTH, _USAGE. */
int leader_candidate_start(struct leader_candidate *candidate, struct server *server,
                           const struct addresses *addresses, uint16_t port,
                           struct ctrun_error *err);
/* Where the elected server is now; 0: nobody is elected. Any thread. */
size_t leader_candidate_find_servers(struct leader_candidate *candidate,
                                     struct ct_addr *out, size_t max);
/* Resigns. The server must have ended (server_join), but must not be destroyed. */
void leader_candidate_stop(struct leader_candidate *candidate);
/* After the server is destroyed. NULL is fine. */
void leader_candidate_destroy(struct leader_candidate *candidate);
