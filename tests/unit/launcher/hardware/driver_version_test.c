/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include "launcher/hardware/driver_version.h"

TEST(the_version_is_the_first_word_of_digits_and_dots)
{
    static const struct {
        const char *text, *version;
    } cases[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 "
         "22:23:56 "
         "UTC 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
         "550.54.15"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release "
         "Build  (dvs-builder@U22)  Sun Jul 27 2025\n",
         "580.65.06"},
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module\nGCC version:  gcc 12.2 "
         "(Debian)\n",
         ""},
        {"version 1.2\n", ""},
        {"", ""},
    };
    char version[16];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        driver_version_parse(version, sizeof version, cases[i].text);
        assert_string_equal(version, cases[i].version);
    }
}
