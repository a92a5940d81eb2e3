/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a log file that grows and is renamed (--log-max-size): where its last lines begin,
 * and which file comes after the one that is open. */
#pragma once

#include <sys/types.h>

#define LOG_FOLLOW_ANYBODY ((uid_t)-1)

/* Sets fd's offset to where the last `count` lines begin; one without an end counts. 0 or a
 * negative errno. */
int log_follow_tail(int fd, int count);
/* Called at the end of *fd (-1: not there yet). When its file was renamed, *fd becomes the
 * next newer one: path.2, path.1 and so on up to path. When it was emptied, it is read from
 * its beginning. Only a plain file of `owner` is opened. 1: there is more to read; 0: this is the
 * newest; or a negative errno, -EPERM for another file. */
int log_follow_next(int *fd, const char *path, uid_t owner);
