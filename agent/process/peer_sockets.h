/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connections between ranks, shut down or slowed from outside: a rank that waits in a collective
 * for a lost rank, or for a rank that waits itself, gets an error at once.
 *
 *     struct peer_sockets *sockets = peer_sockets_create();
 *     peer_sockets_add(sockets, rank, pid, true);   for each process of each worker of this node
 *     peer_sockets_cut(sockets, &job);
 *     peer_sockets_destroy(sockets);
 *
 * A connection is between ranks when its other end is held by another worker of this node, or is
 * an address of another node of the job. A connection to a worker store that is lost with its
 * node is shut down, too. All other connections are left alone: to the worker store, known by
 * its port; between processes of one worker; to other processes; and all of a rank that has a
 * GPU open, because NCCL's threads end the process when a connection of NCCL breaks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PEER_SOCKETS_MAX = 16384 /* 64 ranks in four groups, each rank connected to each */
};

struct peer_sockets;

struct peer_sockets_job {
    uint16_t store_port;
    const uint8_t (*hosts)[16]; /* ct_addr_key() of all nodes; borrowed */
    size_t host_count;
    const uint8_t (*own)[16]; /* of this node, which may be among them; borrowed */
    size_t own_count;
    uint8_t lost_host[16]; /* ct_addr_key() of a worker store whose node is lost, */
    uint16_t lost_port;    /* 0: no such store */
};

struct peer_sockets_result {
    int cut;   /* or limited */
    int ended; /* the other end had closed or reset it */
    /* to the worker store, left alone: the program may use it to form groups */
    int store;
    int refused; /* errno where the kernel does not allow it; 0: allowed */
};

struct peer_sockets *peer_sockets_create(void); /* NULL: out of memory */
void peer_sockets_destroy(struct peer_sockets *sockets);
/* Notes the connections of a process. is_cut: those of this rank may be shut down at this end;
 * else they are used only to find the other end of a connection. Descriptors beyond
 * PEER_SOCKETS_MAX are not looked at. */
void peer_sockets_add(struct peer_sockets *sockets, int rank, pid_t pid, bool is_cut);
/* How many live connections go to this port; a negative errno: there is none that we can see, and the
 * kernel does not allow it for all. */
int peer_sockets_count(const struct peer_sockets *sockets, uint16_t port);
/* Never blocks. */
struct peer_sockets_result peer_sockets_cut(struct peer_sockets *sockets,
                                            const struct peer_sockets_job *job);
/* Limits what is sent on these connections to `rate` bytes a second each (SO_MAX_PACING_RATE in socket(7)); 0: no limit.
 * Those to a lost store are left alone. Never blocks. */
struct peer_sockets_result peer_sockets_throttle(struct peer_sockets *sockets,
                                                 const struct peer_sockets_job *job,
                                                 uint32_t rate);
