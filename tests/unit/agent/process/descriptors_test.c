/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>

#include "agent/process/descriptors.h"
#include "tests/lib/test.h"

/* Size of the kernel's table of descriptors, from /proc. */
static int table_size(void)
{
    char line[256];
    int size = -1;
    FILE *file = fopen("/proc/self/status", "re");

    assert_non_null(file);
    while (size < 0 && fgets(line, sizeof line, file))
        (void)sscanf(line, "FDSize: %d", &size);
    (void)fclose(file);
    return size;
}

static int open_count(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(directory);
    while (readdir(directory))
        count++;
    (void)closedir(directory);
    return count;
}

TEST(room_is_made_and_nothing_stays_open)
{
    const int before = open_count();

    descriptors_reserve(1000);
    assert_true(table_size() >= 1000);
    assert_int_equal(open_count(), before);
}

TEST(a_low_limit_is_respected)
{
    const int size = table_size();
    const int before = open_count();
    struct rlimit limit;
    struct rlimit low;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = (rlim_t)size;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    descriptors_reserve(100000);
    assert_int_equal(table_size(), size);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(open_count(), before);
}
