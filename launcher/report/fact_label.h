/* SPDX-License-Identifier: Apache-2.0 */
/* What people read in front of a fact, in the block and in summary.json. */
#pragma once

#include "worker_sdk/wire/facts.h"

/* "likely"; "also" for one of a newer peer. Static. */
const char *fact_label(uint8_t key);
/* The key of a label; 0: there is none. */
uint8_t fact_key(const char *label);
