/* SPDX-License-Identifier: Apache-2.0 */
/* Room for descriptors, made while it is cheap. The kernel's table of them doubles whenever it
 * is full. Where threads share it, the one that fills it waits until every processor has let go
 * of the old table: 5 to 15 ms, twice in the start of 64 workers. */
#ifndef AGENT_DESCRIPTORS_H
#define AGENT_DESCRIPTORS_H

/* Makes room for `count` descriptors, as far as RLIMIT_NOFILE goes. Before the first thread. */
void descriptors_reserve(int count);

#endif
