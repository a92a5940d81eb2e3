/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the journal, each with its reason. */
#pragma once

enum {
    /* Enough for RUNS_MAX small runs, or some of the largest ones. */
    JOURNAL_FILE_MAX_BYTES = 1 << 30,
    /* The file is written anew when its dead batches exceed the live ones by this. */
    JOURNAL_FILE_SLACK_BYTES = 1 << 20,
};
