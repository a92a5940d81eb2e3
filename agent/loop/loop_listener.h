/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket on the loop. As long as no descriptor or no memory is left for the connection
 * that waits, the socket stays readable, and the loop would do nothing else: then the socket is
 * left alone for a while, and a line says so. */
#pragma once

#include "agent/loop/loop.h"

struct loop_listener;

/* A connection may wait: loop_listener_accept() it. */
typedef void loop_listener_fn(void *context);

/* Takes fd, which listens. `name`, static text, is for the line. NULL: out of memory; fd is closed. */
struct loop_listener *loop_listener_open(struct loop *loop, int fd, const char *name,
                                         loop_listener_fn *fn, void *context);
/* The next connection, which does not block and is the caller's. A negative errno: none waits, it
 * has gone, or it has to wait. */
int loop_listener_accept(struct loop_listener *listener);
void loop_listener_close(struct loop_listener *listener); /* NULL is fine */
