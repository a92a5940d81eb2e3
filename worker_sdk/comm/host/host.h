/* SPDX-License-Identifier: Apache-2.0 */
/* The back end of every build: shared memory inside a host, TCP between hosts. */
#ifndef CT_COMM_HOST_H
#define CT_COMM_HOST_H

#include "worker_sdk/comm/backend/backend.h"

extern const struct ct_backend_ops ct_host_backend;

#endif
