/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of a worker store, each with its reason. The caps of one request are part of the protocol:
 * worker_sdk/tcpstore/codec.h. */
#pragma once

enum {
    /* A value built with APPEND; a single request has at most 8 MiB. */
    STORE_VALUE_MAX_BYTES = 64 << 20,
    /* Replies that wait for a client to read them: above this mark its next requests wait too.
     * Small, because an idle client may keep a buffer of this size. */
    STORE_OUTPUT_MARK_BYTES = 64 << 10,
    /* The largest single reply (MULTI_GET of many large values); beyond, the client is closed. */
    STORE_OUTPUT_MAX_BYTES = 128 << 20,
    /* Keys, values, queues, waits and unfinished requests of one store: beyond this, clients that
     * write are closed, and clients that read continue. Worlds of 10 000 ranks need some 10 MiB. */
    STORE_DATA_MAX_BYTES = 1 << 30,
    /* Replies of one store that are not sent yet, all clients together. */
    STORE_OUTPUT_TOTAL_MAX_BYTES = 512 << 20,
};
