/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a C++ function in source form: "_ZN4gloo9allreduceE..." is gloo::allreduce. Only
 * names with their scopes: arguments are left out, template arguments are "<...>", and "..." stands
 * for a part that is not understood and ends the name. Pure; the input may be anything. */
#pragma once

#include <stddef.h>

/* Copies any other name. Cuts what does not fit. */
void cpp_name_format(char *dst, size_t size, const char *name);
