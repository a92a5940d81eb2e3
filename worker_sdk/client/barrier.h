/* SPDX-License-Identifier: Apache-2.0 */
/* A barrier over a store, for ranks that share nothing else yet. */
#ifndef CT_CLIENT_BARRIER_H
#define CT_CLIENT_BARRIER_H

#include "worker_sdk/client/store.h"

/* Blocks until `size` ranks have called it with the same name. A name serves once: number
 * them. Works with servers of every version; costs three requests and one wait per rank,
 * nobody polls. CTRUN_E_TIMEOUT names the ranks that did not come. */
int ct_store_barrier(struct ct_store *store, const char *name, int rank, int size,
                     uint64_t timeout_ms, struct ctrun_error *err);

#endif
