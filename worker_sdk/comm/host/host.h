/* SPDX-License-Identifier: Apache-2.0 */
/* The back end of every build: shared memory inside a host, TCP between hosts. */
#pragma once

#include "worker_sdk/comm/backend/backend.h"

extern const struct ct_backend_ops ct_host_backend;
