/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting: every member says who and where it is; member 0 gathers that into one table and
 * all read it. Each rank does two writes and one read, however large the group is.
 *
 *     KEY/hello/I   member I: a struct ct_peer, encoded
 *     KEY/table     by member 0: the cookie of the group and all hellos, or who did not come
 */
#ifndef CT_COMM_MEET_H
#define CT_COMM_MEET_H

#include <stdint.h>
#include <sys/types.h>

#include "worker_sdk/base/addr.h"
#include "worker_sdk/comm/backend.h"

enum {
    CT_COOKIE_BYTES = 16,
    CT_HOST_ID_MAX = 160,
    CT_PEER_NAME_MAX = 64,
    CT_HELLO_MAX_BYTES = 1024,
};

/* One member, as it described itself. */
struct ct_peer {
    int rank; /* in the world */
    pid_t pid;
    uint64_t
        start_ticks; /* when the process started: tells it from a later one of this pid */
    uint64_t net_id; /* network namespace: equal means that loopback is shared */
    char host_id[CT_HOST_ID_MAX]; /* equal: these can share memory */
    char name[CT_PEER_NAME_MAX];  /* host name, for people */
    int segment_fd; /* of its first shared-memory segment, in its process */
    int addr_count;
    struct ct_addr addrs[CT_ADDRS_MAX]; /* where it listens, ports included */
};

/* Fills in what this process knows about itself; not segment_fd and addrs. */
void ct_peer_describe_self(struct ct_peer *peer, const struct ct_backend_setup *setup);
/* "rank 3 (pid 812 on node2)"; dst has CT_PEER_TEXT_MAX bytes. */
enum {
    CT_PEER_TEXT_MAX = 128
};
void ct_peer_format(char *dst, const struct ct_peer *peer);
/* Field 22 of /proc/PID/stat; 0 when there is no such process. */
uint64_t ct_peer_start_ticks(pid_t pid);

/* For tests and the fuzzer: one hello as bytes. Length, or -EMSGSIZE; 0 or -EBADMSG. */
int ct_peer_encode(const struct ct_peer *peer, void *data, size_t size);
int ct_peer_decode(struct ct_peer *peer, const void *data, size_t length);

/* Blocks until all have come. peers: setup->size entries; peers[setup->me] is filled in by the
 * caller and says who we are, the others are filled here. cookie: CT_COOKIE_BYTES, the same on
 * all members, unknown to strangers. On CTRUN_E_TIMEOUT err names the missing ranks. */
int ct_meet(struct ct_peer *peers, unsigned char *cookie,
            const struct ct_backend_setup *setup, struct ctrun_error *err);

#endif
