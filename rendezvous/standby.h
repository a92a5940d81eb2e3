/* SPDX-License-Identifier: Apache-2.0 */
/* A server whose nodes may go on without it, and one that takes its place: what round_takeover.c
 * decides, on the connections.
 *
 *     host      standby_send_roster, standby_send_echo, standby_acknowledge ... standby_disband
 *     standby   turns agents away ── standby_begin ── host */
#ifndef RENDEZVOUS_STANDBY_H
#define RENDEZVOUS_STANDBY_H

#include "rendezvous/peer.h"
#include "rendezvous/round.h"

struct ct_heritage;
struct run;

/* Begins the run. 0, -ENOMEM, or -EINVAL: impossible limits. */
int standby_begin(struct dispatch *dispatch, const struct ct_heritage *heritage,
                  struct ctrun_error *err);
/* A run that is forgotten leaves behind who may go on without this server. */
void standby_keep_allegiance(struct dispatch *dispatch, struct round *round);
/* This server ends in an orderly way: nobody is to take its place. */
void standby_disband(struct dispatch *dispatch);
void standby_send_roster(struct run *run, struct peer *peer);
/* Nothing where there are no heirs. */
void standby_send_echo(struct peer *peer);
/* At once, or as soon as it is certain that nobody can go on without this server. */
void standby_acknowledge(struct peer *peer, const struct ct_heartbeat *heartbeat);
/* Gives the command, an ECHO, to the round, and acknowledges what had to wait for it. */
void standby_take_echo(struct peer *peer, const struct round_command *command);

#endif
