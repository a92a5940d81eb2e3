/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a group: who it is, and whether it shares memory or a loopback with another. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/comm/backend/backend.h"

enum {
    CT_HOST_ID_MAX = 160,
    CT_PEER_NAME_MAX = 64,
    CT_PEER_TEXT_MAX = 128,
    CT_HELLO_MAX_BYTES = 1024,
};

/* One member, as it described itself. */
struct ct_peer {
    int rank; /* in the world */
    pid_t pid;
    uint64_t
        start_ticks; /* when the process started: tells it from a later one of this pid */
    uint64_t net_id;  /* network namespace: equal means that loopback is shared */
    uint64_t members; /* a hash of the ranks that it was given: all give the same */
    char host_id[CT_HOST_ID_MAX]; /* equal: these can share memory */
    char name[CT_PEER_NAME_MAX];  /* host name, for people */
    int segment_fd; /* of its first shared-memory segment, in its process */
    int addr_count;
    struct ct_addr addrs[CT_ADDRS_MAX]; /* where it listens, ports included */
};

/* Fills in what this process knows about itself; not segment_fd and addrs. */
void ct_peer_describe_self(struct ct_peer *peer, const struct ct_backend_setup *setup);
/* "rank 3 (pid 812 on node2)"; dst has CT_PEER_TEXT_MAX bytes. */
void ct_peer_format(char *dst, const struct ct_peer *peer);
/* Field 22 of /proc/PID/stat; 0 when there is no such process. */

/* The hello: what of a peer the others are told, as bytes. Length, or -EMSGSIZE; 0 or
 * -EBADMSG. */
int ct_peer_encode(const struct ct_peer *peer, void *data, size_t size);
int ct_peer_decode(struct ct_peer *peer, const void *data, size_t length);
