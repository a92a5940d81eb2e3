/* SPDX-License-Identifier: Apache-2.0 */
/* RLIMIT_FSIZE 0 of live processes: they can write no regular file, nor into one that is open. Their write() gets EFBIG, and
 * they get SIGXFSZ, which ends a process that does not ignore it. Pipes and sockets are as before. */
#pragma once

#include "agent/process/reap.h"

/* For all living descendants but those of `keep`, and for what they start from then on. How many there are; 0: none could
 * be limited. */
int file_limit_set(const struct reap_keep *keep);
/* Those that file_limit_set() has limited, and what they have started, have the limit of this process again. */
void file_limit_lift(const struct reap_keep *keep);
