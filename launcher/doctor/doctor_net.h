/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl doctor --net: every node of a run against every other one, before a training does
 * it. Each node tells its addresses through the worker store, connects to all of the others'
 * and tells what happened; the first one judges.
 *
 *     node i:  TOLD ──all told──> TICK ──> tries all ways ──> DONE ──all done──> (node 0 judges)
 */
#ifndef LAUNCHER_DOCTOR_DOCTOR_NET_H
#define LAUNCHER_DOCTOR_DOCTOR_NET_H

#include "launcher/doctor/doctor.h"

enum {
    DOCTOR_NODES_MAX = 1024,
    DOCTOR_NODE_ADDRS = 8,
    DOCTOR_TEXT_MAX = 2048,
    DOCTOR_SOMEBODY_ELSE = 1, /* error of a way: it led to another machine */
};

/* One node, as it tells itself. */
struct doctor_node {
    char host[128];
    uint64_t nonce; /* what its listener says: it is really this node */
    int port;
    int64_t clock_ms; /* at the tick, since 1970 */
    char version[32]; /* of ctrun */
    char driver[32];  /* of the GPUs; empty: none */
    char nccl[32];
    char addrs[DOCTOR_NODE_ADDRS][CT_ADDR_TEXT_MAX];
    int addr_count;
};

/* From one node to an address of another. */
struct doctor_way {
    int from;
    int to;
    int addr;
    int error; /* 0: works; an errno; DOCTOR_SOMEBODY_ELSE */
    int took_ms;
};

/* Runs as a worker of a run (any launcher's that sets the usual environment). Returns true when
 * this node is the one that judges: doctor has its findings. False with findings: it went wrong. */
bool doctor_net(struct doctor *doctor);

/* ---- Pure */

/* What travels; dst has DOCTOR_TEXT_MAX bytes. */
void doctor_node_format(char *dst, const struct doctor_node *node);
int doctor_node_parse(struct doctor_node *out, const char *text);
/* What is not well with one node, a line each: level, what, value, fix. Cut where it does not
 * fit. */
void doctor_findings_format(char *dst, size_t size, const struct doctor *doctor);
/* Adds the findings of a node; what others have as well is told once, with their names. */
void doctor_add_findings(struct doctor *doctor, const char *host, const char *text);
void doctor_check_nodes(struct doctor *doctor, const struct doctor_node *nodes,
                        int count);
/* `ways` are in the order of `from`. */
void doctor_check_ways(struct doctor *doctor, const struct doctor_node *nodes,
                       int count, const struct doctor_way *ways, size_t way_count);

#endif
