/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Opens /dev/null in place of standard input, output and error as far as the program was started without them;
 * its children inherit that. Otherwise the next file that is opened would get their number, and a message or a worker's
 * output would go into a journal or an event file. First thing in main(), before other threads. */
void ct_std_streams_fill(void);
