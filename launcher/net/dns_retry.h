/* SPDX-License-Identifier: Apache-2.0 */
/* A name that does not resolve yet: a headless service whose first pod is starting, a host file
 * that is still being written. It is asked for again, at most a second apart, until the
 * deadline, and people are told what is waited for. */
#pragma once

#include "worker_sdk/net/addr.h"

/* ct_addr_resolve(), patiently: the number of addresses, or CTRUN_E_DNS after timeout_ms.
 * Blocks. Numbers ask nobody. */
int dns_retry_resolve(const struct ct_endpoint *endpoint, uint64_t timeout_ms,
                      struct ct_addr *out, int max, struct ctrun_error *err);
