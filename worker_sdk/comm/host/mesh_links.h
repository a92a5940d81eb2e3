/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the connections of a mesh: the higher member connects, the lower accepts, both greet.
 * mesh.h describes the rules. */
#pragma once

#include "worker_sdk/comm/host/mesh.h"

/* Fills mesh->data and mesh->control (-1 before) with connected, greeted sockets. Blocks until all
 * are connected, at most until setup's deadline; on failure the mesh owns those that are open,
 * too. */
int ct_mesh_links_open(struct ct_mesh *mesh, const struct ct_mesh_setup *setup,
                       struct ctrun_error *err);
