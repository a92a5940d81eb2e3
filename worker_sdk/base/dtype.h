/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of element types; their sizes are in the public header. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/include/ctrun.h"

bool ct_dtype_is_float(enum ctrun_dtype dtype);
/* "f32"; "?" for a number that is no dtype: it may have come from another process. Static. */
const char *ct_dtype_name(int dtype);
