/* SPDX-License-Identifier: Apache-2.0 */
/* How long the start of one worker took, in the phases of a bill from BILL_START on. Pure. */
#pragma once

#include "agent/watch/bill.h"

struct worker;

void start_profile_read(struct bill_rank *out, const struct worker *worker);
