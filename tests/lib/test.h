/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test includes: cmocka, after the headers that it needs. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka gives each test a state, which few need, and a stand-in takes all arguments of what it replaces. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* The options of a call that runs in the background. */
#define IN_BACKGROUND(where)                                                           \
    (&(struct ctrun_call_options){sizeof(struct ctrun_call_options), 0, where, NULL})

/* A test that is also the tests `names`, "one; another": torch's names of its DDP tests, and
 * vectors that torch's DDP gave. tests/self/test_torch_names.py has the list of all. */
#define TORCH_TEST(test, names)                                                        \
    {                                                                                  \
#test " = " names, test, NULL, NULL, NULL                                      \
    }
