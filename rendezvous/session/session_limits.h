/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the runs of one server, each with its reason. */
#pragma once

enum {
    /* Runs of one ctrund: a busy site's jobs, not a flood's. */
    RUNS_MAX = 4096,
    /* With --ha: a member of a run that lives says so once a second to who listens at its endpoint.
     * Nothing begins here before three have had their turn. */
    RUN_HA_LISTEN_MS = 3000,
    /* ... in steps: twice as long without one, and it was stopped. */
    RUN_HA_LOOK_MS = 500,
    /* Without a token, from one address: a node has some jobs, and a proxy a site's. */
    RUNS_PER_ADDRESS_MAX = RUNS_MAX / 4,
    /* Runs whose nodes are gone, which wait until no worker of theirs can be alive. */
    RUNS_DESERTED_MAX = RUNS_MAX / 4,
    RUNS_DESERTED_PER_ADDRESS_MAX = 64,
    /* Values of all ranks: a page of them has 10 MiB at most, with the longest names. */
    RANK_METRICS_MAX = 16384,
    /* How long one MUNGE credential is given to agents; it is good for five minutes. */
    ADMISSION_CREDENTIAL_MS = 60000,
};
