/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the journal, each with its reason. */
#pragma once

enum {
    /* Of RUNS_MAX small runs, or some of the largest ones. */
    JOURNAL_FILE_MAX_BYTES = 1 << 30,
    /* What is not live any more, beyond as much as is: then the file is written anew. */
    JOURNAL_FILE_SLACK_BYTES = 1 << 20,
};
