/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the rendezvous server to the run's own etcd as a whole: users, members. Each
 * call blocks until its deadline at most; one thread. */
#pragma once

#include "launcher/etcd/etcd.h"
#include "worker_sdk/wire/message.h"

/* Its name in etcd. dst has HA_NAME_MAX bytes. */
void ha_cluster_format_name(char *dst, uint64_t key);
/* "NAME=URL,..." of all of them. 0 or -ENAMETOOLONG. */
int ha_cluster_format(char *dst, size_t size, const struct ct_ha_plan *plan);
/* The clients' ports of those that vote, as the endpoints of `config`. */
void ha_cluster_fill(struct etcd_config *config, const struct ct_ha_plan *plan);

/* True when the one member that `config` names answers and knows a leader. */
bool ha_cluster_is_up(const struct etcd_config *config, uint64_t deadline_ms);
/* If the one member that `config` names leads etcd, hands the leadership to the member of id `to`.
 * 1: done; 0: that member does not lead; or a code. */
int ha_cluster_move_lead(const struct etcd_config *config, const char *to,
                         uint64_t deadline_ms, struct ctrun_error *err);
/* One user, root, with the password of `config`; etcd refuses all without it from then on. May be
 * repeated. 0 or a code. */
int ha_cluster_secure(const struct etcd_config *config, uint64_t deadline_ms,
                      struct ctrun_error *err);
/* Replaces the members of `plan` by etcd's own list: members that etcd does not have are dropped.
 * ids[i] is etcd's id of members[i]. A member that has never run and is not in `plan` has key 0. 0
 * or a code. */
int ha_cluster_list(struct etcd *etcd, struct ct_ha_plan *plan,
                    char ids[CT_HA_MEMBERS_MAX][24], uint64_t deadline_ms,
                    struct ctrun_error *err);
int ha_cluster_add(struct etcd *etcd, const struct ct_ha_member *member,
                   uint64_t deadline_ms, struct ctrun_error *err);
/* ETCD_MEMBER_REMOVE, ETCD_MEMBER_PROMOTE. */
int ha_cluster_change(struct etcd *etcd, enum etcd_call call, const char *id,
                      uint64_t deadline_ms, struct ctrun_error *err);
