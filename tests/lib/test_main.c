/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <stdlib.h>

static struct CMUnitTest tests[256];
static size_t count;

void test_add(struct CMUnitTest test)
{
    if (count == sizeof tests / sizeof *tests)
        abort(); /* there is no room */
    tests[count++] = test;
}

int test_run(CMFixtureFunction before, CMFixtureFunction after)
{
    if (count == 0)
        return 1; /* what tests nothing has not passed */
    return _cmocka_run_group_tests("tests", tests, count, before, after);
}

__attribute__((weak)) int main(void)
{
    return test_run(NULL, NULL);
}
