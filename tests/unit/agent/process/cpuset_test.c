/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "agent/process/cpuset.h"
#include "tests/lib/test.h"

TEST(lists_go_there_and_back)
{
    static const char *const lists[][2] = {
        {"", ""},
        {"\n", ""},
        {"0", "0"},
        {"0-3\n", "0-3"},
        {"8, 0-1,2", "0-2,8"},
        {"0-15,32-47", "0-15,32-47"},
        {"63-64,8191", "63-64,8191"},
    };
    char text[64];

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct cpuset set;

        assert_int_equal(cpuset_parse(&set, lists[i][0]), 0);
        cpuset_format(&set, text, sizeof text);
        assert_string_equal(text, lists[i][1]);
    }
}

TEST(nonsense_is_refused)
{
    static const char *const bad[] = {"a", "-1", "3-", "3-1", "1,,2", "0x3", "1 2"};
    struct cpuset set;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(cpuset_parse(&set, bad[i]), -EINVAL);
    assert_int_equal(cpuset_parse(&set, "8192"), -ERANGE);
    assert_int_equal(cpuset_parse(&set, "99999999999999999999"), -ERANGE);
}

TEST(a_long_text_ends_in_dots)
{
    struct cpuset set;
    char text[12];

    assert_int_equal(cpuset_parse(&set, "0,2,4,6,8,10,12"), 0);
    cpuset_format(&set, text, sizeof text);
    assert_string_equal(text, "0,2,4,6,...");
}

TEST(members_are_walked_in_order)
{
    struct cpuset set;
    struct cpuset other;

    assert_int_equal(cpuset_parse(&set, "3,70"), 0);
    assert_int_equal(cpuset_next(&set, 0), 3);
    assert_int_equal(cpuset_next(&set, 4), 70);
    assert_int_equal(cpuset_next(&set, 71), -1);
    assert_int_equal(cpuset_count(&set), 2);
    assert_int_equal(cpuset_parse(&other, "70-71"), 0);
    cpuset_intersect(&set, &other);
    assert_false(cpuset_has(&set, 3));
    cpuset_add(&set, 71);
    assert_true(cpuset_is_equal(&set, &other));
    assert_false(cpuset_has(&set, CPUSET_CPUS_MAX));
}
