/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of connections to one server in one process and one thread. Ends the program with a
 * line about what went wrong: it is made for benchmarks and tests of scale. */
#pragma once

#include "worker_sdk/base/buf.h"

struct swarm_conn {
    int fd;
    int index;
    struct ct_buf in; /* what came and was not consumed */
};

struct swarm {
    struct swarm_conn *conns;
    int count;
    int epoll;
    struct ct_buf out; /* of one send */
    /* The connection is open. */
    void (*on_open)(struct swarm *swarm, struct swarm_conn *conn);
    /* Something was appended to conn->in. */
    void (*on_bytes)(struct swarm *swarm, struct swarm_conn *conn);
};

/* Opens `count` connections to 127.0.0.1:port as fast as the server lets it. */
void swarm_open(struct swarm *swarm, int port, int count);
/* Sends swarm->out and empties it. */
void swarm_send(struct swarm *swarm, struct swarm_conn *conn);
/* Serves until *left is 0; ends the program when that takes longer than deadline_ms, saying that
 * it waited for `what`. */
void swarm_run(struct swarm *swarm, const int *left, int deadline_ms, const char *what);
/* Serves until *left is 0, or for `ms`. */
void swarm_idle(struct swarm *swarm, const int *left, int ms);
/* Closes the connection without a message. */
void swarm_drop(struct swarm_conn *conn);
void swarm_close(struct swarm *swarm);
