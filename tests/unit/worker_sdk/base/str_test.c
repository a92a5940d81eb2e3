/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/str_list.h"

TEST(format_and_copy_tell_what_did_not_fit)
{
    char text[4];

    assert_int_equal(ct_format(text, sizeof text, "%d", 123), 3);
    assert_int_equal(ct_format(text, sizeof text, "%d", 1234), -ENAMETOOLONG);
    assert_string_equal(text, "123");
    assert_int_equal(ct_copy(text, sizeof text, "abc"), 0);
    assert_int_equal(ct_copy(text, sizeof text, "wxyz"), -ENAMETOOLONG);
    assert_string_equal(text, "wxy");
}

TEST(items_are_appended_until_the_room_ends)
{
    char list[12] = "";

    assert_int_equal(ct_append_item(list, sizeof list, ", ", "%d", 12), 2);
    assert_int_equal(ct_append_item(list, sizeof list, ", ", "%d", 34), 6);
    assert_string_equal(list, "12, 34");
    assert_int_equal(ct_append(list, sizeof list, " and %d", 5), -ENAMETOOLONG);
    assert_string_equal(list, "12, 34 and ");
    assert_int_equal(ct_append_item(list, sizeof list, ", ", "6"), -ENAMETOOLONG);
    assert_string_equal(list, "12, 34 and ");
}

TEST(a_base_name_is_what_is_behind_the_last_slash)
{
    assert_string_equal(ct_base_name("/usr/bin/python3"), "python3");
    assert_string_equal(ct_base_name("train.py"), "train.py");
    assert_string_equal(ct_base_name("folder/"), "");
}

TEST(numbers_are_parsed_whole_or_not_at_all)
{
    static const char *const bad[] = {"", " 1", "1 ", "0x1", "1.0", "+1", "-1", "a"};
    uint64_t u;
    int64_t i;

    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        assert_int_equal(ct_parse_u64(bad[k], 0, UINT64_MAX, &u), -EINVAL);
    assert_int_equal(ct_parse_u64("18446744073709551616", 0, UINT64_MAX, &u), -ERANGE);
    assert_int_equal(ct_parse_u64("7", 8, 9, &u), -ERANGE);
    assert_int_equal(ct_parse_u64("18446744073709551615", 0, UINT64_MAX, &u), 0);
    assert_int_equal(ct_parse_i64("-12", -12, 12, &i), 0);
    assert_int_equal(i, -12);
    assert_int_equal(ct_parse_i64("-", -12, 12, &i), -EINVAL);
}

TEST(blanks_around_a_text_are_left_out)
{
    size_t length = 7;
    const char *text = ct_trim(" \ta b\n ", &length);

    assert_int_equal(length, 3);
    assert_memory_equal(text, "a b", 3);
    length = 2;
    (void)ct_trim("  ", &length);
    assert_int_equal(length, 0);
}

TEST(fields_include_empty_ones)
{
    const char *cursor = "a,,b";
    size_t length;

    assert_memory_equal(ct_next_field(&cursor, ',', &length), "a", 1);
    assert_int_equal(length, 1);
    assert_non_null(ct_next_field(&cursor, ',', &length));
    assert_int_equal(length, 0);
    assert_memory_equal(ct_next_field(&cursor, ',', &length), "b", 1);
    assert_null(ct_next_field(&cursor, ',', &length));
}

TEST(integers_are_read_as_python_reads_them)
{
    int64_t i;

    assert_int_equal(ct_parse_python_int(" +7\n", &i), 0);
    assert_int_equal(i, 7);
    assert_int_equal(ct_parse_python_int("-7", &i), 0);
    assert_int_equal(i, -7);
    assert_int_equal(ct_parse_python_int("-1_0_0 ", &i), 0);
    assert_int_equal(i, -100);
    assert_int_equal(ct_parse_python_int("1__0", &i), -EINVAL);
    assert_int_equal(ct_parse_python_int("_1", &i), -EINVAL);
    assert_int_equal(ct_parse_python_int("1_", &i), -EINVAL);
    assert_int_equal(ct_parse_python_int("7 8", &i), -EINVAL);
    assert_int_equal(ct_parse_python_int("", &i), -EINVAL);
    assert_int_equal(ct_parse_python_int("1000000000000000000000000", &i), -ERANGE);
}

TEST(a_copied_list_owns_its_strings)
{
    char first[] = "a";
    char *list[] = {first, NULL};
    char **copy = ct_str_list_copy(list);

    first[0] = 'b';
    assert_int_equal(ct_str_list_count(copy), 1);
    assert_string_equal(copy[0], "a");
    ct_str_list_free(copy);
    assert_int_equal(ct_str_list_count(NULL), 0);
}
