/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <string.h>

#include "launcher/options/role_spec.h"

TEST(only_name_number_and_colon_make_a_spec)
{
    static const char *const specs[] = {"a=1:x", "a=007:", "a b:c=3:x=1:y"};
    static const char *const names[] = {"",      "default", "a=b",   "a=1",
                                        "=1:x",  "a:1=b",   "a=:x",  "a=-1:x",
                                        "a=1b:", "a=b=1:x", "a= 1:x"};

    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        assert_true(role_spec_is(specs[i]));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (role_spec_is(names[i]))
            fail_msg("%s is torchrun's", names[i]);
}

TEST(a_spec_has_three_parts)
{
    struct ct_role role;
    const char *command;

    assert_int_equal(
        role_spec_parse(&role, &command, "data server=12:./serve a=1:2", NULL), 0);
    assert_string_equal(role.name, "data server");
    assert_int_equal(role.slots, 12);
    assert_string_equal(command, "./serve a=1:2");
}

TEST(bad_parts_are_refused)
{
    static const char long_name[] =
        "a23456789b23456789c23456789d23456789e23456789f23456789g23456789h=1:x";
    static const char *const bad[][2] = {
        {"a=0:x", "1 to 4096 workers"},
        {"a=4097:x", "1 to 4096 workers"},
        {"a=99999999999999999999999:x", "1 to 4096 workers"},
        {"a=1:", "no command after"},
        {"a=1: \t", "no command after"},
        {"a=1: \\\n ", "no command after"},
        {long_name, "is longer than 63 bytes"},
    };
    struct ct_role role;
    struct ctrun_error err;
    const char *command;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(role_spec_is(bad[i][0]));
        assert_int_equal(role_spec_parse(&role, &command, bad[i][0], &err),
                         CTRUN_E_USAGE);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
}

static const struct ct_role_list three = {.count = 3,
                                          .list = {{.name = "a", .slots = 1},
                                                   {.name = "b", .slots = 2},
                                                   {.name = "cc", .slots = 1}}};

static int parse(int64_t counts[CT_ROLES_MAX], const char *text,
                 struct ctrun_error *err)
{
    for (int i = 0; i < CT_ROLES_MAX; i++)
        counts[i] = ROLE_SPEC_UNSET;
    return role_spec_parse_restarts(counts, &three, text, err);
}

TEST(restarts_are_those_of_each_role_that_is_named)
{
    int64_t counts[CT_ROLES_MAX];

    assert_int_equal(parse(counts, "b=3", NULL), 0);
    assert_int_equal(counts[0], ROLE_SPEC_UNSET);
    assert_int_equal(counts[1], 3);
    assert_int_equal(parse(counts, "b=0,a=2147483647", NULL), 0);
    assert_int_equal(counts[0], INT32_MAX);
    assert_int_equal(counts[1], 0);
}

TEST(restarts_of_nobody_or_no_number_are_refused)
{
    static const char *const bad[][2] = {
        {"c=1", "c=1: this node has no --role of that name"},
        {"ab=1", "no --role of that name"},
        {"a", "a: is not NAME=N"},
        {"=1", "=1: is not NAME=N"},
        {"a=1,", "is not NAME=N"},
        {"a=", "a=: N is 0 to"},
        {"a=2147483648", "N is 0 to 2147483647"},
        {"a=99999999999999999999", "N is 0 to"},
        {"a=1,b=1,a=1", "a=1: a is given twice"},
        {"a=0,a=1", "a=1: a is given twice"},
    };
    int64_t counts[CT_ROLES_MAX];
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(counts, bad[i][0], &err), CTRUN_E_USAGE);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
}
