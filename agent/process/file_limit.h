/* SPDX-License-Identifier: Apache-2.0 */
/* RLIMIT_FSIZE of live processes: they can make no file longer. Their write() gets EFBIG, and they get SIGXFSZ, which ends a
 * process that does not ignore it. Files that are open, pipes and sockets are as before. */
#pragma once

#include "agent/process/reap.h"

/* For all living descendants but those of `keep`, and for what they start from then on. How many there are; 0: none could
 * be limited. */
int file_limit_set(const struct reap_keep *keep);
/* Those that file_limit_set() has limited, and what they have started, have the limit of this process again. */
void file_limit_lift(const struct reap_keep *keep);
