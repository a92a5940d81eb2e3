/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a log file that grows and is renamed (--log-max-size): where its last lines begin,
 * and which file comes after the one that is open. */
#pragma once

#include <sys/types.h>

#define LOG_FOLLOW_ANYBODY ((uid_t)-1)

/* Sets fd's offset to the start of the last `count` lines; a last line without '\n' counts. 0 or a
 * negative errno. */
int log_follow_tail(int fd, int count);
/* Called at the end of *fd (-1: the file does not exist yet). If the file was renamed, *fd
 * becomes the next newer file: path.2, path.1 and so on up to path. If it was truncated, it is
 * read from its beginning. Opens only a regular file of `owner`; LOG_FOLLOW_ANYBODY: any file.
 * 1: there is more to read; 0: this is the newest file; or a negative errno, -EPERM for another
 * kind of file or owner. */
int log_follow_next(int *fd, const char *path, uid_t owner);
