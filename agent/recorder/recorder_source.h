/* SPDX-License-Identifier: Apache-2.0 */
/* The text of recorder.py. */
#pragma once

extern const char recorder_source[];
