/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl doctor --net: tests the network between all nodes of a run before a training
 * uses it. Each node publishes its addresses in the worker store, connects to the addresses of all
 * other nodes and publishes the results; node 0 reads them and makes the findings.
 *
 *     node i:  address published ──all have──> tick ──> probes ──> results published
 *                                                              ──all have──> node 0 evaluates
 */
#pragma once

#include "launcher/doctor/doctor.h"

enum {
    DOCTOR_NODES_MAX = 1024,
    DOCTOR_NODE_ADDRS = 8,
    DOCTOR_TEXT_MAX = 2048,
    DOCTOR_SOMEBODY_ELSE = 1, /* error of a probe: another machine answered */
};

/* One node, as it describes itself. */
struct doctor_node {
    char host[128];
    uint64_t nonce; /* sent by its listener: proves that it is this node */
    int port;
    int64_t clock_ms; /* since 1970, read at the tick */
    char version[32]; /* of ctrun */
    char driver[32];  /* GPU driver; empty: none */
    char nccl[32];
    char addrs[DOCTOR_NODE_ADDRS][CT_ADDR_TEXT_MAX];
    int addr_count;
};

/* One attempt to connect from a node to an address of another. */
struct doctor_probe {
    int from;
    int to;
    int addr;
    int error; /* 0: works; an errno; DOCTOR_SOMEBODY_ELSE */
    int took_ms;
};

/* Runs as a worker of a run (any launcher's that sets the usual environment). Returns true on
 * node 0: doctor has the findings of all nodes. False with findings: the test itself failed. */
bool doctor_net(struct doctor *doctor);

/* ---- Pure */

/* A node as text for the worker store; dst has DOCTOR_TEXT_MAX bytes. */
void doctor_node_format(char *dst, const struct doctor_node *node);
int doctor_node_parse(struct doctor_node *out, const char *text);
/* The warnings and failures of one node, a line each: level, what, value, fix. Lines that do not
 * fit are left out. */
void doctor_findings_format(char *dst, size_t size, const struct doctor *doctor);
/* Adds the findings of a node; a finding that several nodes have is kept once, with their names. */
void doctor_add_findings(struct doctor *doctor, const char *host, const char *text);
void doctor_check_nodes(struct doctor *doctor, const struct doctor_node *nodes,
                        int count);
/* `probes` are sorted by `from`. */
void doctor_check_probes(struct doctor *doctor, const struct doctor_node *nodes,
                         int count, const struct doctor_probe *probes,
                         size_t probe_count);
