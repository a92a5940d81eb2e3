/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* Refuses a struct that cannot be a parameter; the error has its index and name. Pure. */
int ct_ddp_param_check(const struct ctrun_param *param, size_t p,
                       struct ctrun_error *err);
/* Bytes of one that was checked. */
size_t ct_ddp_param_bytes(const struct ctrun_param *param);
