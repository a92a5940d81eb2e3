/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Opens /dev/null for each of standard input, output and error that the program was started
 * without; children inherit it. Otherwise the next opened file would get this number, and a message
 * or a worker's output would go into a journal or an event file. To be called first in main(),
 * before other threads. */
void ct_std_streams_fill(void);
