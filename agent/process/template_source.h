/* SPDX-License-Identifier: Apache-2.0 */
/* The text of template.py. */
#pragma once

extern const char template_source[];
