/* SPDX-License-Identifier: Apache-2.0 */
/* `ctrun --relay`: what ssh starts on a host of a --hosts run. Reads its job from standard
 * input, runs its part of the run, and ends with it. When standard input ends before that, kills
 * everything here at once. Returns the exit code. */
#pragma once

int ssh_relay_run(void);
