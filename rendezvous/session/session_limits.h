/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the runs of one server, each with its reason. */
#pragma once

enum {
    /* Runs of one ctrund: enough for the jobs of a busy site, but no flood of runs. */
    RUNS_MAX = 4096,
    /* With --ha: members of a running run report it once a second to a server at its endpoint. A
     * new server waits for three such periods before it starts a world. */
    RUN_HA_LISTEN_MS = 3000,
    /* Step of this wait: after twice this time without a step the process was stopped. */
    RUN_HA_LOOK_MS = 500,
    /* The timer of a run looks at the clock at least this often. */
    RUN_LOOK_MS = 5000,
    /* After a pause of this process: in this time heartbeats that are on their way arrive. */
    RUN_LOOK_AGAIN_MS = 100,
    /* Runs from one address without a token: a node has some jobs, a proxy has those of a site. */
    RUNS_PER_ADDRESS_MAX = RUNS_MAX / 4,
    /* Runs whose nodes are gone, which wait until none of their workers can be alive. */
    RUNS_DESERTED_MAX = RUNS_MAX / 4,
    RUNS_DESERTED_PER_ADDRESS_MAX = 64,
    /* Values of all ranks: a page of them has 10 MiB at most, with the longest names. */
    RANK_METRICS_MAX = 16384,
    /* How long one MUNGE credential is sent to agents; it is valid for five minutes. */
    ADMISSION_CREDENTIAL_MS = 60000,
};
