/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a C++ function as people write it: "_ZN4gloo9allreduceE..." is gloo::allreduce. Names with their
 * scopes only: arguments are left out, those of templates are "<...>", and what is not understood ends the name with
 * "...". Pure; the name may be anything. */
#pragma once

#include <stddef.h>

/* Any other name is copied. What does not fit is cut. */
void cpp_name_format(char *dst, size_t size, const char *name);
