/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connections between ranks, shut down from outside: a rank that waits in a collective for one
 * that is gone, or for one that waits itself, has an error at once.
 *
 *     struct peer_sockets *sockets = peer_sockets_create();
 *     peer_sockets_add(sockets, rank, pid, true);   for each process of each worker of this node
 *     peer_sockets_cut(sockets, &job);
 *     peer_sockets_destroy(sockets);
 *
 * A connection is one between ranks when its other end is held by another worker of this node, or is an
 * address of another node of the job. One to a worker store that is lost with its node is shut down like them. All else is left alone: the worker store's, by its port; those
 * between processes of one worker; those to other processes; every one of a rank that has a GPU open, because
 * there NCCL has connections, and threads that end the process when one breaks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PEER_SOCKETS_MAX = 16384 /* 64 ranks in four groups, each connected to each */
};

struct peer_sockets;

struct peer_sockets_job {
    uint16_t store_port;
    const uint8_t (*hosts)[16]; /* ct_addr_key() of all nodes; borrowed */
    size_t host_count;
    const uint8_t (*own)[16]; /* of this node, which may be among them; borrowed */
    size_t own_count;
    uint8_t lost_host[16]; /* ct_addr_key() of a worker store whose node is lost, */
    uint16_t lost_port;    /* 0: none is */
};

struct peer_sockets_result {
    int cut;
    int ended;   /* the other end had closed or reset it */
    int store;   /* to the worker store, left alone: a program that meets others */
    int refused; /* errno of the kernel, which does not let us; 0: it does */
};

struct peer_sockets *peer_sockets_create(void); /* NULL: out of memory */
void peer_sockets_destroy(struct peer_sockets *sockets);
/* Takes note of the connections of a process. is_cut: those of this rank may be shut down at this end;
 * else they are only known as somebody's other end. Files beyond PEER_SOCKETS_MAX are not looked at. */
void peer_sockets_add(struct peer_sockets *sockets, int rank, pid_t pid, bool is_cut);
/* Never blocks. */
struct peer_sockets_result peer_sockets_cut(struct peer_sockets *sockets,
                                            const struct peer_sockets_job *job);
