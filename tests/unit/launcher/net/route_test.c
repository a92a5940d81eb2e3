/* SPDX-License-Identifier: Apache-2.0 */
/* The variables that name the interface for libraries. */
#include <string.h>

#include "launcher/net/route.h"
#include "tests/lib/full_env.h"
#include "tests/lib/test.h"

static const struct route route = {.nic = "eth0", .is_v6_beside_v4 = true};

TEST(what_is_missing_is_set_and_what_is_there_stays)
{
    char there[] = "GLOO_SOCKET_IFNAME=lo";
    char *const base[] = {there, NULL};
    struct ct_env env;

    assert_int_equal(ct_env_init(&env, base), 0);
    assert_int_equal(route_set_env(&env, &route), 0);
    assert_string_equal(ct_env_get(&env, "NCCL_SOCKET_IFNAME"), "=eth0");
    assert_string_equal(ct_env_get(&env, "NCCL_SOCKET_FAMILY"), "AF_INET6");
    assert_string_equal(ct_env_get(&env, "GLOO_SOCKET_IFNAME"), "lo");
    ct_env_deinit(&env);
}

static int set(struct ct_env *env)
{
    return route_set_env(env, &route);
}

TEST(no_memory_for_an_entry_is_told)
{
    assert_true(full_env_fail_each(set) > 0);
}
