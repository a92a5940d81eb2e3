/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a group: its identity, and whether it shares memory or loopback with another
 * member. */
#pragma once

#include <stdbool.h>
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
    /* start time of the process: distinguishes a later process with this pid */
    uint64_t start_ticks;
    uint64_t net_id;  /* network namespace: members with equal ids share loopback */
    uint64_t members; /* a hash of the ranks given to it: equal on all members */
    char host_id[CT_HOST_ID_MAX]; /* members with equal ids can share memory */
    char name[CT_PEER_NAME_MAX];  /* host name, for messages */
    int segment_fd;               /* descriptor of its shared-memory segment */
    int addr_count;
    struct ct_addr addrs[CT_ADDRS_MAX]; /* addresses where it listens, with ports */
};

/* Fills in what this process knows about itself; not segment_fd and addrs. */
void ct_peer_describe_self(struct ct_peer *peer, const struct ct_backend_setup *setup);
/* A member that shares memory with no other one. */
void ct_peer_be_alone(struct ct_peer *peer);
bool ct_peer_is_alone(const struct ct_peer *peer);
/* "rank 3 (pid 812 on node2)"; dst has CT_PEER_TEXT_MAX bytes. */
void ct_peer_format(char *dst, const struct ct_peer *peer);
/* Said of a member whose process is gone: it may have been killed, or have returned from main. */
#define CT_PEER_ENDED "has ended without ctrun_group_close()"

/* The hello: the part of a peer that the others get, as bytes. encode: length, or -EMSGSIZE;
 * decode: 0 or -EBADMSG. */
int ct_peer_encode(const struct ct_peer *peer, void *data, size_t size);
int ct_peer_decode(struct ct_peer *peer, const void *data, size_t length);
