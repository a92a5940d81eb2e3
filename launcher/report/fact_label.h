/* SPDX-License-Identifier: Apache-2.0 */
/* The labels of facts, in the failure block and in summary.json. */
#pragma once

#include "worker_sdk/wire/facts.h"

/* "likely"; "also" for a key that only a newer ctrun knows. Static. */
const char *fact_label(uint8_t key);
/* The key of a label; 0: there is none. */
uint8_t fact_key(const char *label);
