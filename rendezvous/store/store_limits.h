/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of a worker store, each with its reason. What one request may hold is part of the protocol and
 * stands in worker_sdk/tcpstore/codec.h. */
#pragma once

enum {
    /* A value that APPEND built; a single request carries at most 8 MiB. */
    STORE_VALUE_MAX_BYTES = 64 << 20,
    /* Replies that wait for a client to read them: above this mark its next requests wait too.
     * Small, because an idle client may keep a buffer of this size. */
    STORE_OUTPUT_MARK_BYTES = 64 << 10,
    /* The largest single reply (MULTI_GET of many large values); beyond, the client is closed. */
    STORE_OUTPUT_MAX_BYTES = 128 << 20,
    /* Keys, values, queues, waits and unfinished requests of one store: beyond, who writes is
     * closed, who reads continues. Worlds of 10 000 ranks need some 10 MiB. */
    STORE_DATA_MAX_BYTES = 1 << 30,
    /* Replies of one store that are not sent yet, all clients together. */
    STORE_OUTPUT_TOTAL_MAX_BYTES = 512 << 20,
};
