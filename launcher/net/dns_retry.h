/* SPDX-License-Identifier: Apache-2.0 */
/* A name that does not resolve yet: a headless service whose first pod is starting, a host file
 * that is still being written. The name is resolved again, after pauses of at most a second,
 * until the deadline, and a notice says what ctrun waits for. */
#pragma once

#include "worker_sdk/net/addr.h"

/* ct_addr_resolve() with retries: the number of addresses, or CTRUN_E_DNS after timeout_ms.
 * Blocks. A numeric address is not looked up. */
int dns_retry_resolve(const struct ct_endpoint *endpoint, uint64_t timeout_ms,
                      struct ct_addr *out, int max, struct ctrun_error *err);
