/* SPDX-License-Identifier: Apache-2.0 */
/* Where one stream of one worker goes. */
#pragma once

enum agent_stream {
    /* one worker: inherited descriptor; else a pipe, printed in whole lines */
    AGENT_STREAM_CONSOLE,
    AGENT_STREAM_FILE,             /* --redirects */
    AGENT_STREAM_TEE,              /* file, and console with the prefix */
    AGENT_STREAM_DROP,             /* not in --local-ranks-filter: dropped */
    AGENT_STREAM_FILE_ONLY_OF_TEE, /* teed, but filtered: file only */
};
