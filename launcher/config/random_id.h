/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "worker_sdk/base/error.h"

/* A version 4 UUID, as torchrun gives to a run that has no other name: 37 bytes. */
int random_id_make(char *dst, size_t size, struct ctrun_error *err);
