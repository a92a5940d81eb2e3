/* SPDX-License-Identifier: Apache-2.0 */
/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024", or
 * "... UNIX Open Kernel Module for x86_64  550.54.15  Release Build ...": the first word of digits and dots. */
#include "launcher/hardware/driver_version.h"

#include <string.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    TEXT_MAX_BYTES = 1024
};

void driver_version_parse(char *dst, size_t size, const char *text)
{
    const char *end = text + strcspn(text, "\n"); /* the next line has that of gcc */
    const char *word;
    size_t length;

    *dst = '\0';
    if (strncmp(text, "NVRM version:", 13) != 0)
        return;
    while (text && (word = ct_next_field(&text, ' ', &length)) && word < end)
        if (length > 0 && strspn(word, "0123456789.") == length &&
            memchr(word, '.', length)) {
            (void)ct_format(dst, size, "%.*s", (int)length, word); /* fits */
            return;
        }
}

void driver_version_find(char *dst, size_t size)
{
    char text[TEXT_MAX_BYTES] = "";

    (void)ct_small_file_read(text, sizeof text, "/proc/driver/nvidia/version");
    driver_version_parse(dst, size, text);
}
