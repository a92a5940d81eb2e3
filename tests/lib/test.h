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

/* TEST(name) { ... } is a test. The tests of a program run in the order of their definition; its
 * main() is in test_main.c, unless it has one of its own, which calls test_run(). */
#define TEST(name) TEST_AROUND(name, NULL, NULL)
/* `before` and `after` run before and after the test; NULL: nothing. */
#define TEST_AROUND(name, before, after) TEST_NAMED(#name, name, before, after)
/* A test that is also the tests `names`, "one; another": torch's names of its DDP tests, and
 * vectors that torch's DDP gave. tests/self/test_torch_names.py has the list of all. */
#define TORCH_TEST(test, names) TEST_NAMED(#test " = " names, test, NULL, NULL)
#define TEST_NAMED(text, name, before, after)                                          \
    static void name(void **state);                                                    \
    __attribute__((constructor)) static void add_##name(void)                          \
    {                                                                                  \
        test_add((struct CMUnitTest){text, name, before, after, NULL});                \
    }                                                                                  \
    static void name(void **state)

void test_add(struct CMUnitTest test);
/* Runs all tests, `before` once before them and `after` once after them. How many failed; 1 if there is none. */
int test_run(CMFixtureFunction before, CMFixtureFunction after);
