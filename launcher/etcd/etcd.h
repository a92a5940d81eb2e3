/* SPDX-License-Identifier: Apache-2.0 */
/* A client of etcd: one call at a time, each with a deadline, on whichever member answers.
 *
 * A call goes to the member that answered last; when that member does not answer, is broken or has
 * no leader, to the next. So a call may have been done although it failed, or twice: callers use
 * transactions for which that does not matter. */
#pragma once

#include "launcher/config/etcd_config.h"
#include "launcher/etcd/json_etcd.h"

struct etcd;

enum etcd_call {
    ETCD_LOGIN,
    ETCD_RANGE,
    ETCD_TXN,
    ETCD_GRANT,
    ETCD_KEEPALIVE,
    ETCD_REVOKE,
    ETCD_WATCH,
    /* Of the whole cluster: a run's own etcd only. */
    ETCD_STATUS,
    ETCD_MOVE_LEADER,
    ETCD_USER_ADD,
    ETCD_ROLE_ADD,
    ETCD_USER_GRANT,
    ETCD_AUTH_ENABLE,
    ETCD_MEMBER_LIST,
    ETCD_MEMBER_ADD,
    ETCD_MEMBER_REMOVE,
    ETCD_MEMBER_PROMOTE,
};

/* `config` is kept. 0, CTRUN_E_USAGE: this ctrun or this machine has no libcurl, -ENOMEM. */
int etcd_open(struct etcd **out, const struct etcd_config *config,
              struct ctrun_error *err);
void etcd_close(struct etcd *etcd);
/* Any thread: the members are these from the next call on (the endpoints of `config`; the rest of it
 * does not count). */
void etcd_set_members(struct etcd *etcd, const struct etcd_config *config);
/* The body of the next call: empty, to be filled by json_etcd_*(). */
struct ct_buf *etcd_body(struct etcd *etcd);
/* Makes the call with the body. 0 and *reply, which may hold an error of etcd's (reply->code);
 * CTRUN_E_UNREACHABLE: nobody answered by the deadline; CTRUN_E_AUTH: password or certificate
 * refused, or a token that is too long; CTRUN_E_USAGE: a file of ours is no good; -ECANCELED,
 * -ENOMEM. */
int etcd_do(struct etcd *etcd, enum etcd_call call, uint64_t deadline_ms,
            struct json_etcd_reply *reply, struct ctrun_error *err);
/* Watches with the body until on_reply, which sees each answer, returns false, or until the
 * deadline: both 0. A watch that is cut is an error as above; the next one goes to the next
 * member. */
int etcd_watch(struct etcd *etcd, uint64_t deadline_ms,
               bool (*on_reply)(void *context, const struct json_etcd_reply *reply),
               void *context, struct ctrun_error *err);
/* From any thread: see http_client_wake(). */
void etcd_wake(struct etcd *etcd);
void etcd_rearm(struct etcd *etcd);
