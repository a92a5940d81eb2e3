/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/net/connect_error.h"
#include "worker_sdk/net/net.h"
#include "worker_sdk/net/port_range.h"

static struct ct_nic make_nic(const char *name, const char *addr)
{
    struct ct_nic nic = {.has_carrier = true};

    assert_int_equal(ct_addr_parse(addr, 0, &nic.addr), 0);
    memcpy(nic.name, name, strlen(name) + 1);
    return nic;
}

TEST(a_net_is_an_interface_a_network_or_an_address)
{
    static const struct {
        const char *net;
        const char *name;
        const char *addr;
        bool has;
    } cases[] = {
        {"", "eth0", "10.1.2.3", true},
        {"eth0", "eth0", "10.1.2.3", true},
        {"eth0", "eth00", "10.1.2.3", false},
        {"10.1.0.0/16", "eth0", "10.1.2.3", true},
        {"10.2.0.0/16", "eth0", "10.1.2.3", false},
        {"10.1.2.0/23", "eth0", "10.1.3.255", true},
        {"10.1.2.0/23", "eth0", "10.1.4.0", false},
        {"10.1.2.3", "eth0", "10.1.2.3", true},
        {"10.1.2.3", "eth0", "10.1.2.4", false},
        {"0.0.0.0/0", "eth0", "10.1.2.3", true},
        {"0.0.0.0/0", "eth0", "fd00::1", false},
        {"fd00::/8", "eth0", "fd00::1", true},
        {"fd00::/8", "eth0", "fe80::1", false},
        {"::/0", "eth0", "10.1.2.3", false},
        {"ib0,eth0", "eth0", "10.1.2.3", true},
        {"ib0,fd00::/8", "eth0", "10.1.2.3", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ct_nic nic = make_nic(cases[i].name, cases[i].addr);
        struct ct_net net;

        assert_int_equal(ct_net_parse(cases[i].net, &net, NULL), 0);
        if (ct_net_has(&net, &nic) != cases[i].has)
            fail_msg("%s has %s %s", cases[i].net, cases[i].name, cases[i].addr);
    }
}

TEST(what_is_no_net_is_refused)
{
    static const char *const bad[] = {"10.1.0.0/33", "fd00::/129",        "10.1.0.0/",
                                      "eth0,",       "a_very_long_name1", "eth0/24",
                                      "a:b",         "1,2,3,4,5,6,7,8,9", ","};
    struct ct_net net;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ct_net_parse(bad[i], &net, NULL) == 0)
            fail_msg("'%s' was taken", bad[i]);
}

TEST(our_own_addresses_are_listed_and_found)
{
    struct ct_nic all[CT_NICS_MAX], found;
    struct ct_net net;
    int count = ct_nic_list(all, CT_NICS_MAX);
    bool was_loopback = false;

    assert_true(count > 0); /* 127.0.0.1 at least */
    for (int i = 0; i < count; i++) {
        assert_true(ct_nic_find(&found, &all[i].addr));
        assert_true(all[i].is_loopback || !was_loopback); /* loopback comes last */
        was_loopback = all[i].is_loopback;
    }
    assert_int_equal(ct_net_parse("127.0.0.0/8", &net, NULL), 0);
    assert_true(ct_net_list(&net, all, CT_NICS_MAX) >= 1);
    assert_true(all[0].is_loopback);
    assert_int_equal(ct_net_parse("203.0.113.0/24", &net, NULL), 0); /* RFC 5737 */
    assert_int_equal(ct_net_list(&net, all, CT_NICS_MAX), 0);
}

TEST(keys_do_not_tell_mapped_v4_from_v4)
{
    struct ct_addr a, b;
    uint8_t key_a[16], key_b[16];

    assert_int_equal(ct_addr_parse("10.1.2.3", 5, &a), 0);
    assert_int_equal(ct_addr_parse("::ffff:10.1.2.3", 6, &b), 0);
    ct_addr_key(key_a, &a);
    ct_addr_key(key_b, &b);
    assert_memory_equal(key_a, key_b, 16);
}

TEST(a_port_range_is_two_ports_in_order)
{
    static const char *const bad[] = {"0",     "1-",      "-1",    "5-4", "1-65536",
                                      "65536", "1-2-3",   "a-b",   " 1",  "1 - 2",
                                      "1,2",   "29400-x", "999999"};
    struct ct_port_range range;

    assert_int_equal(ct_port_range_parse("", &range, NULL), 0);
    assert_true(ct_port_range_has(&range, 1) && ct_port_range_count(&range) == 1);
    assert_int_equal(ct_port_range_at(&range, 4711, 0), 0);
    assert_int_equal(ct_port_range_parse("29400", &range, NULL), 0);
    assert_true(ct_port_range_has(&range, 29400) && !ct_port_range_has(&range, 29401));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ct_port_range_parse(bad[i], &range, NULL) == 0)
            fail_msg("'%s' was taken", bad[i]);
}

TEST(an_error_of_connect_says_only_what_it_means)
{
    static const struct {
        int rc;
        const char *text;
    } cases[] = {
        {-ECONNREFUSED,
         "no process listens at that port, or a firewall rejects connections to it"},
        {-EHOSTUNREACH, "no machine answers at that address, or a firewall or router "
                        "rejects connections to it"},
        {-ENETUNREACH, "this node, or a router, has no route to that address"},
        {-ETIMEDOUT,
         "no answer: no machine is up at that address, or a firewall drops packets"},
        {-EPERM, "a rule of this node's firewall or routes forbids it"},
        {-ENETDOWN, "the network interface of this node is down"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ct_connect_error_explain(cases[i].rc), cases[i].text);
    assert_null(ct_connect_error_explain(-EMFILE));
    assert_null(ct_connect_error_explain(0));
}

TEST(every_port_of_a_range_is_tried_once)
{
    struct ct_port_range range;

    assert_int_equal(ct_port_range_parse("65526-65535", &range, NULL), 0);
    for (uint32_t seed = 1; seed < 100000; seed = seed * 7 + 1) {
        unsigned seen = 0;

        for (int i = 0; i < ct_port_range_count(&range); i++)
            seen |= 1u << (ct_port_range_at(&range, seed, i) - 65526);
        assert_int_equal(seen, 0x3ff);
    }
}
