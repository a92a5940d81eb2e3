/* SPDX-License-Identifier: Apache-2.0 */
/* A firewall drops packets, or rejects them: by a reset or "port unreachable" (refused), or, as
 * firewalld does, by "host prohibited" (no route to host). */
#include "worker_sdk/net/connect_error.h"

#include <errno.h>
#include <stddef.h>

const char *ct_connect_error_explain(int rc)
{
    switch (-rc) {
    case ECONNREFUSED:
        return "no process listens at that port, or a firewall rejects connections to "
               "it";
    case EHOSTUNREACH:
        return "no machine answers at that address, or a firewall or router rejects "
               "connections to it";
    case ENETUNREACH: return "this node, or a router, has no route to that address";
    case ETIMEDOUT:
        return "no answer: no machine is up at that address, or a firewall drops "
               "packets";
    case EACCES:
    case EPERM: return "a rule of this node's firewall or routes forbids it";
    case ENETDOWN: return "the network interface of this node is down";
    default: return NULL;
    }
}
