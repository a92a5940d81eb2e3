/* SPDX-License-Identifier: Apache-2.0 */
/* The text of recorder.py. */
#ifndef AGENT_RECORDER_RECORDER_SOURCE_H
#define AGENT_RECORDER_RECORDER_SOURCE_H

extern const char recorder_source[];

#endif
