/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test includes: cmocka with the headers that it wants in front. */
#ifndef TESTS_LIB_TEST_H
#define TESTS_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
