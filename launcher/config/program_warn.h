/* SPDX-License-Identifier: Apache-2.0 */
/* Words behind ctrun's own options that are probably meant otherwise. */
#pragma once

#include "launcher/options/option.h"

/* Warns of options of ctrun that stand behind the program, and of a program that is a launcher itself. Both may
 * be meant: the run goes on. */
void program_warn(const struct options *options);
