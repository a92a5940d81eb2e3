/* SPDX-License-Identifier: Apache-2.0 */
/* The process that keeps this node's member of the run's own etcd (--ha): its folder, its
 * certificates, its ports and etcd itself.
 *
 *     ctrun (guard) ─┬─ agent ── socket ── keeper: one request, one answer
 *                    └─ keeper ── etcd
 *
 * It is a child of the guard, beside the second guard, so that a program that stops or counts
 * workers does not find etcd among them. It lives as long as the agent holds the other end of the
 * socket; then it kills etcd, removes the folder and ends. Etcd dies with it (PDEATHSIG). So
 * whichever of these processes is killed, no process is left, and the folder only when the keeper
 * is killed together with the agent: the next ctrun with --ha on this machine removes it.
 *
 * The folder is $TMPDIR/ctrun-ha-XXXXXX (else /tmp), 0700. */
#pragma once

#include <limits.h>

#include "launcher/ha/ha_certs.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/net/port_range.h"

enum {
    HA_NAME_MAX = 20, /* of a member: its key in hex */
    HA_CLUSTER_MAX = 1024,
    HA_FOLDER_MAX = 256,
};

enum ha_keeper_verb {
    HA_KEEPER_RESERVE, /* two free ports of `addr`, held until START has used them */
    HA_KEEPER_CERTIFY, /* ca.pem, me.pem and me.key in a new folder, from `secret`, for `addr` */
    HA_KEEPER_START, /* etcd, in that folder, at those ports */
    HA_KEEPER_STOP,  /* kills it; the ports are free, its data are gone */
};

struct ha_keeper_request {
    enum ha_keeper_verb verb;
    char addr[CT_ADDR_TEXT_MAX];
    struct ct_port_range ports;
    uint8_t secret[HA_SECRET_BYTES];
    char name[HA_NAME_MAX];
    char cluster[HA_CLUSTER_MAX]; /* NAME=URL,... of all members at their peer ports */
    char token[HA_NAME_MAX];      /* of this cluster */
    bool joins;                   /* an existing cluster */
};

struct ha_keeper_reply {
    bool has_ended; /* no answer: etcd has ended by itself; `text` is its last output */
    int rc;         /* 0, or a negative errno, and `text` says why */
    uint16_t client_port, peer_port; /* RESERVE */
    char folder[HA_FOLDER_MAX];      /* CERTIFY */
    char text[512];
};

struct ha_keeper {
    int fd; /* the agent's end; -1: none */
    int pid;
};

/* Before guard_run(), and before any thread. `etcd` and `openssl` are paths of programs. 0, or a
 * negative errno. */
int ha_keeper_start(struct ha_keeper *keeper, const char *etcd, const char *openssl,
                    struct ctrun_error *err);
/* In the guard, after guard_run(): waits until the keeper has ended, three seconds at most. */
void ha_keeper_wait(const struct ha_keeper *keeper);

/* In the agent, one thread. Sends the request and waits for its answer. 0; -ETIMEDOUT: ask nothing
 * more, for the next answer would be this one's; -EPIPE: the keeper was killed; or the answer's rc.
 * Sets *has_ended if etcd has ended meanwhile. */
int ha_keeper_ask(const struct ha_keeper *keeper,
                  const struct ha_keeper_request *request,
                  struct ha_keeper_reply *reply, bool *has_ended,
                  struct ctrun_error *err);
/* Whether etcd has ended meanwhile; does not wait. */
bool ha_keeper_has_ended(const struct ha_keeper *keeper, struct ha_keeper_reply *reply);
