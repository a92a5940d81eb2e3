/* SPDX-License-Identifier: Apache-2.0 */
/* The version of NVIDIA's driver on this machine; loads no library. */
#pragma once

#include <stddef.h>

/* "550.54.15" from the text of /proc/driver/nvidia/version; empty when it has none. Pure. */
void driver_version_parse(char *dst, size_t size, const char *text);
/* Reads that file; empty: there is no driver. */
void driver_version_find(char *dst, size_t size);
