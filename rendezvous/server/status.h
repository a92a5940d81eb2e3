/* SPDX-License-Identifier: Apache-2.0 */
/* What the server is doing, as JSON, for GET /status:
 *
 *     {"version": "0.1.0", "connections": 3,
 *      "runs": [{"run_id": "job", "state": "running", "generation": 2, "restart_count": 1,
 *                "max_restarts": 3, "min_nodes": 1, "max_nodes": 2, "up_ms": 5200,
 *                "members": [{"host": "n1", "address": "10.0.0.1", "state": "running",
 *                             "group_rank": 0, "slots": 8, "step": 410, "silent_ms": 300}]}]}
 *
 * group_rank, slots and step are present once they are known. run_id, host and address are left out
 * if agents must prove a secret: an HTTP client cannot. */
#pragma once

#include "rendezvous/session/dispatch.h"

/* The text, to be freed; NULL when memory is short. */
char *status_format(const struct dispatch *dispatch);
