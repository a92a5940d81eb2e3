/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of the stack (ulimit -s). The kernel kills a process that needs more by SIGSEGV,
 * without a message. */
#pragma once

#include "worker_sdk/base/error.h"

/* 0, or CTRUN_E_RESOURCES: a report, or a library of CUDA, needs more. `program` is the name
 * in the message. */
int stack_limit_check(const char *program, struct ctrun_error *err);
