/* SPDX-License-Identifier: Apache-2.0 */
/* A full environment: each further variable needs memory. */
#pragma once

#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"

/* Calls set(env) on a full environment, with each allocation failing in turn, until it succeeds. Returns how
 * many failed. */
static inline size_t full_env_fail_each(int (*set)(struct ct_env *env))
{
    char filler[4096], name[2] = "A";
    int rc = -ENOMEM;
    size_t n;

    for (n = 0; rc == -ENOMEM; n++) {
        struct ct_env env;

        assert_int_equal(ct_env_init(&env, NULL), 0);
        name[0] = 'A';
        for (size_t length = sizeof filler / 2; length > 0; length /= 2, name[0]++) {
            memset(filler, 'x', length);
            filler[length] = '\0';
            assert_int_equal(ct_env_set(&env, name, filler), 0);
        }
        ct_alloc_fail_at(n + 1);
        rc = set(&env);
        ct_alloc_fail_at(0);
        assert_true(rc == 0 || rc == -ENOMEM);
        ct_env_deinit(&env);
    }
    return n - 1;
}
