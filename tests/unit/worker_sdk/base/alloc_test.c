/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of secrets is wiped before it is freed, and only where it was used. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

enum {
    PAGES = 200
};

static size_t resident, dirty;

int __real_munmap(void *at, size_t length);
int __wrap_munmap(void *at, size_t length);

int __wrap_munmap(void *at, size_t length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char used[PAGES + 2];

    assert_true(length <= sizeof used * page);
    assert_int_equal(mincore(at, length, used), 0);
    for (size_t i = 0; i < length; i++)
        if (used[i / page] & 1)
            dirty += ((const char *)at)[i] != 0;
    for (size_t i = 0; i * page < length; i++)
        resident += used[i] & 1;
    return __real_munmap(at, length);
}

TEST(a_secret_is_wiped_where_it_was_used)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *secret = ct_secret_zalloc(PAGES * page);

    assert_non_null(secret);
    memset(secret + 70 * page, 's', 10);
    secret[PAGES * page - 1] = 's';
    resident = dirty = 0;
    ct_secret_free(secret);
    assert_int_equal(dirty, 0);
    assert_int_equal(resident, 3); /* its header, and the two used */
}
