/* SPDX-License-Identifier: Apache-2.0 */
/* What libraries are told of the interface. */
#include <errno.h>
#include <string.h>

#include "launcher/net/route.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

static const struct route route = {.nic = "eth0", .is_v6_beside_v4 = true};

static void what_is_missing_is_set_and_what_is_there_stays(void **state)
{
    char there[] = "GLOO_SOCKET_IFNAME=lo";
    char *const base[] = {there, NULL};
    struct ct_env env;

    (void)state;
    assert_int_equal(ct_env_init(&env, base), 0);
    assert_int_equal(route_set_env(&env, &route), 0);
    assert_string_equal(ct_env_get(&env, "NCCL_SOCKET_IFNAME"), "=eth0");
    assert_string_equal(ct_env_get(&env, "NCCL_SOCKET_FAMILY"), "AF_INET6");
    assert_string_equal(ct_env_get(&env, "GLOO_SOCKET_IFNAME"), "lo");
    ct_env_deinit(&env);
}

/* An environment has room for some entries from birth; here it is used up. */
static void no_memory_for_an_entry_is_told(void **state)
{
    char filler[4096] = "", name[2] = "A";
    int rc = -ENOMEM;
    size_t n;

    (void)state;
    for (n = 1; rc == -ENOMEM; n++) {
        struct ct_env env;

        assert_int_equal(ct_env_init(&env, NULL), 0);
        for (size_t length = sizeof filler / 2; length > 0; length /= 2, name[0]++) {
            memset(filler, 'x', length);
            filler[length] = '\0';
            assert_int_equal(ct_env_set(&env, name, filler), 0);
        }
        name[0] = 'A';
        ct_alloc_fail_at(n);
        rc = route_set_env(&env, &route);
        ct_alloc_fail_at(0);
        assert_true(rc == 0 || rc == -ENOMEM);
        ct_env_deinit(&env);
    }
    assert_true(n > 2); /* one has failed at least */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_set_and_what_is_there_stays),
        cmocka_unit_test(no_memory_for_an_entry_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
