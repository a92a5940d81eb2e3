/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the threads of this process. */
#pragma once

#include <dirent.h>

#include "tests/lib/test.h"

static inline int test_count_threads(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}
