/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the server and its HTTP, each with its reason. */
#pragma once

enum {
    /* Endpoint listeners of one server, stores not counted. */
    SERVER_LISTENERS_MAX = 64,
    /* When the server is told to end, agents that have not read their verdict get this long. */
    SERVER_DRAIN_MS = 2000,
    /* A journal that could not be written is written again this often: the server waits for the disk. */
    SERVER_RETRY_MS = 10000,
    /* Request line and headers; usual requests are much smaller. */
    HTTP_REQUEST_MAX_BYTES = 8 << 10,
    /* Beyond, the oldest is closed: there are few probes and users. */
    HTTP_CONNS_MAX = 64,
    /* A page is reused for ten times as long as it took to make, but not longer than this. */
    HTTP_PAGE_MAX_MS = 1000,
    HTTP_PAGE_COST = 10,
    /* A status page of RUNS_MAX small runs, or of one with thousands of members. */
    HTTP_REPLY_MAX_BYTES = 16 << 20,
};
