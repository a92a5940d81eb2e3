/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/net/nic.h"

TEST(endpoints_parse_as_torchrun_does)
{
    static const struct {
        const char *text;
        const char *host;
        int port;
    } good[] = {
        {"node1:29400", "node1", 29400},
        {" node1 ", "node1", -1},
        {"[::1]:80", "::1", 80},
        {"[fe80::1%eth0]", "fe80::1%eth0", -1},
        {"fe80::1", "fe80::1", -1},
        {"10.0.0.1:0", "10.0.0.1", 0},
        {"", "", -1},
    };
    static const char *const bad[] = {"node1:",       "node1:65536", "node1:x",
                                      "a b:1",        "[::1",        "[::1]x",
                                      "node1:123456", "no/de:1"};
    struct ct_endpoint endpoint;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(ct_endpoint_parse(good[i].text, &endpoint, NULL), 0);
        assert_string_equal(endpoint.host, good[i].host);
        assert_int_equal(endpoint.port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(ct_endpoint_parse(bad[i], &endpoint, NULL) < 0);
}

TEST(an_address_that_may_end_with_a_port_is_refused_where_it_was_typed)
{
    static const char *const good[] = {"::1",
                                       "[::1]:2379",
                                       "[::1:2379]",
                                       "fd00::2",
                                       "fe80::fc:ff:fe00:1",
                                       "1:2:3:4:5:6:7:2379",
                                       "fd00::237a",
                                       "h:2379"};
    static const char *const bad[] = {"::1:2379", " fd00::2:2379 ", "::1:29500",
                                      "fe80::1%eth0:29500"};
    struct ct_endpoint endpoint;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(ct_endpoint_parse_typed(good[i], &endpoint, NULL), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ct_endpoint_parse_typed(bad[i], &endpoint, &err), -EINVAL);
    assert_int_equal(ct_endpoint_parse_typed("::1:2379", &endpoint, &err), -EINVAL);
    assert_string_equal(err.text, "endpoint '::1:2379': is 2379 the port? write "
                                  "[::1]:2379, else [::1:2379]");
    assert_int_equal(ct_endpoint_parse("::1:2379", &endpoint, NULL), 0);
}

TEST(loopback_is_mine_and_documentation_addresses_are_not)
{
    struct ct_addr addr;

    assert_int_equal(ct_addr_parse("127.0.1.1", 1, &addr), 0);
    assert_true(ct_addr_is_loopback(&addr) && ct_nic_is_mine(&addr));
    assert_int_equal(ct_addr_parse("::ffff:127.0.0.1", 1, &addr), 0);
    assert_true(ct_addr_is_loopback(&addr));
    assert_int_equal(ct_addr_parse("203.0.113.7", 1, &addr), 0); /* RFC 5737 */
    assert_false(ct_nic_is_mine(&addr));
    assert_true(ct_addr_parse("node1", 1, &addr) < 0);
}

/* Texts that inet_aton(3) would read as 0.0.116.192, 10.0.0.1 and 8.0.0.1. */
TEST(a_number_that_is_no_whole_address_is_refused)
{
    static const char *const bad[] = {"29888", "10.1", "010.0.0.1", "0x7f000001",
                                      "29888:29400"};
    struct ct_endpoint endpoint;
    struct ct_addr addr;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ctrun_error err = {0};

        assert_int_equal(ct_endpoint_parse(bad[i], &endpoint, &err), -EINVAL);
        assert_non_null(strstr(err.text, "is not an address"));
        assert_int_equal(ct_addr_parse(bad[i], 1, &addr), -EINVAL);
        assert_int_equal(ct_addr_resolve(bad[i], 1, &addr, 1, NULL), CTRUN_E_DNS);
    }
    assert_int_equal(ct_endpoint_parse(":29888", &endpoint, NULL), 0);
    assert_int_equal(ct_endpoint_parse("10.0.0.1:29888", &endpoint, NULL), 0);
}

TEST(mapped_addresses_equal_their_v4_form)
{
    struct ct_addr a;
    struct ct_addr b;
    char text[CT_ADDR_TEXT_MAX];

    assert_int_equal(ct_addr_parse("10.1.2.3", 5, &a), 0);
    assert_int_equal(ct_addr_parse("::ffff:10.1.2.3", 6, &b), 0);
    assert_true(ct_addr_is_same_host(&a, &b));
    ct_addr_format(text, &b);
    assert_string_equal(text, "10.1.2.3:6");
    assert_int_equal(ct_addr_parse("2001:db8::1", 7, &a), 0);
    assert_false(ct_addr_is_same_host(&a, &b));
    ct_addr_format(text, &a);
    assert_string_equal(text, "[2001:db8::1]:7");
}

TEST(resolving_a_number_needs_no_resolver)
{
    struct ct_addr addr[2];

    assert_int_equal(ct_addr_resolve("192.0.2.1", 29400, addr, 2, NULL), 1);
    assert_int_equal(ct_addr_port(&addr[0]), 29400);
}

TEST(localhost_is_loopback_and_asks_nobody)
{
    static const char *const names[] = {"localhost", "LocalHost", "localhost.",
                                        "db.localhost", "a.b.localhost."};
    static const char *const others[] = {
        "", ".", "localhos", "local", "mylocalhost", "localhost.example", ".localhost"};
    struct ct_addr addr[3];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_true(ct_addr_is_localhost(names[i]));
        assert_int_equal(ct_addr_resolve(names[i], 29400, addr, 3, NULL), 2);
        assert_true(ct_addr_is_loopback(&addr[0]) && ct_addr_is_loopback(&addr[1]));
        assert_int_equal(addr[0].any.sa_family, AF_INET);
        assert_int_equal(ct_addr_port(&addr[1]), 29400);
        assert_int_equal(ct_addr_resolve(names[i], 29400, addr, 1, NULL), 1);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(ct_addr_is_localhost(others[i]));
}

TEST(unknown_names_are_a_dns_error)
{
    struct ctrun_error err;
    struct ct_addr addr;

    assert_int_equal(ct_addr_resolve("no-such-host.invalid", 1, &addr, 1, &err),
                     CTRUN_E_DNS);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
}
