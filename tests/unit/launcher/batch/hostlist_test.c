/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "launcher/batch/hostlist.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

TEST(lists_expand_as_scontrol_does)
{
    /* What `scontrol show hostnames` of Slurm 22.05.8 prints, with blanks for newlines. */
    static const struct {
        const char *list;
        const char *names;
    } rows[] = {
        {"node[1-3,07-09],login1", "node1 node2 node3 node07 node08 node09 login1"},
        {"n[001-003,5]", "n001 n002 n003 n5"},
        {"n[09-11]", "n09 n10 n11"},
        {"n[99-101]", "n99 n100 n101"},
        {"n[098-101]", "n098 n099 n100 n101"},
        {"n[01-2]", "n01 n02"},
        {"n[1-02]", "n1 n2"},
        {"rack[0-1]n[00-02]", "rack0n00 rack0n01 rack0n02 rack1n00 rack1n01 rack1n02"},
        {"[1-3]", "1 2 3"},
        {"[1-2]a[3]", "1a3 2a3"},
        {"a[1][2]", "a12"},
        {"n[1-3,1-2]", "n1 n2 n3 n1 n2"},
        {"a,,b", "a b"},
        {",n1", "n1"},
        {"n1,,n2,", "n1 n2"},
        {"a b", "a b"},
        {"n[1- 3]", "n1 n2 n3"},
        {"n[18446744073709551615]", "n18446744073709551615"},
        {"n1-3", "n1-3"},
        {"", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hostlist list;
        char joined[256] = "";

        assert_int_equal(hostlist_parse(rows[i].list, &list, NULL), 0);
        for (size_t k = 0; k < list.count; k++)
            ct_format(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s",
                      k ? " " : "", list.names[k]);
        assert_string_equal(joined, rows[i].names);
        hostlist_deinit(&list);
    }
}

TEST(malformed_lists_are_refused)
{
    static const char *const bad[] = {
        "node[1-2]-ib", "x[1-2]y[3-4]z", "a[1]b",
        "n[1-10:2]",    "node[3-1]",     "node[]",
        "a[b-d]",       "n[0x1-0x3]",    "n[-1]",
        "n[1--2]",      "n[1-3]]",       "node[1-2",
        "n[ 1-3 ]",     "n[1,]",         "n[18446744073709551616]",
    };
    struct hostlist list;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hostlist_parse(bad[i], &list, &err), -EINVAL);
        assert_non_null(strstr(err.text, bad[i]));
        assert_null(list.names);
    }
}

TEST(the_number_of_hosts_is_capped)
{
    struct hostlist list;

    assert_int_equal(hostlist_parse("n[0-65535]", &list, NULL), 0);
    assert_int_equal(list.count, 65536);
    hostlist_deinit(&list);
    assert_int_equal(hostlist_parse("n[1-70000]", &list, NULL), -E2BIG);
    assert_int_equal(hostlist_parse("n[1-60000],m[1-60000]", &list, NULL), -E2BIG);
    assert_int_equal(hostlist_parse("a[0-999]b[0-999]c[0-999]", &list, NULL), -E2BIG);
}

TEST(names_are_written_in_brackets)
{
    static const struct {
        const char *in;
        const char *out;
    } rows[] = {
        {"gpu017,gpu044", "gpu[017,044]"},
        {"n1,n2,n3,n07,n08", "n[1-3,07-08]"},
        {"n9,n10,n11", "n[9-11]"},
        {"n009,n0010", "n[009,0010]"},
        {"n10,n9,n8", "n[10,9,8]"},
        {"n1-ib,n2-ib", "n1-ib,n2-ib"},
        {"r0n0,r0n1,r1n0", "r0n[0-1],r1n0"},
        {"login1", "login1"},
        {"", ""},
    };
    char text[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct hostlist list;

        assert_int_equal(hostlist_parse(rows[i].in, &list, NULL), 0);
        assert_string_equal(hostlist_format(&list, text, sizeof text), rows[i].out);
        hostlist_deinit(&list);
    }
}

TEST(what_is_written_is_read_back)
{
    struct hostlist list;
    struct hostlist again;
    static const char *const lists[] = {
        "a[08-11],a[1-3],b,c[5]", "a009,a0010,a011",
        "n[1-999][1-3]", /* one item, 10 kB when it is expanded */
    };
    static char text[1 << 16];

    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        assert_int_equal(hostlist_parse(lists[k], &list, NULL), 0);
        assert_int_equal(
            hostlist_parse(hostlist_format(&list, text, sizeof text), &again, NULL), 0);
        assert_int_equal(again.count, list.count);
        for (size_t i = 0; i < list.count; i++)
            assert_string_equal(again.names[i], list.names[i]);
        hostlist_deinit(&again);
        hostlist_deinit(&list);
    }
}

TEST(what_does_not_fit_ends_in_dots)
{
    struct hostlist list;
    char text[8];

    assert_int_equal(hostlist_parse("a[08-11],b", &list, NULL), 0);
    assert_string_equal(hostlist_format(&list, text, sizeof text), "a[08...");
    hostlist_deinit(&list);
}

TEST(every_failed_allocation_leaves_nothing)
{
    struct hostlist list;
    int rc = -ENOMEM;

    for (size_t n = 1; rc == -ENOMEM; n++) {
        ct_alloc_fail_at(n);
        rc = hostlist_parse("n[1-5],m", &list, NULL);
        assert_true(rc == 0 || !list.names);
    }
    ct_alloc_fail_at(0);
    assert_int_equal(rc, 0);
    hostlist_deinit(&list);
}
