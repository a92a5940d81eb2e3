/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test includes: cmocka with the headers that it wants in front. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The options of a call that goes on in the background. */
#define IN_BACKGROUND(where)                                                           \
    (&(struct ctrun_call_options){sizeof(struct ctrun_call_options), 0, where, NULL})

/* A test that is also those of `names`, "one; another": torch's names of DDP's tests, and vectors that torch's
 * DDP gave. tests/self/test_torch_names.py has the list of them. */
#define TORCH_TEST(test, names)                                                        \
    {                                                                                  \
#test " = " names, test, NULL, NULL, NULL                                      \
    }
