/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_text.h"

#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/digest.h"
#include "worker_sdk/wire/text_code.h"

enum {
    KEY_SHOWN = 8, /* bytes */
    PART_SHOWN = 16,
};

void stage_text_bytes(char dst[STAGE_TEXT_MAX], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 999.5 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1000;
        unit++;
    }
    (void)ct_format(dst, STAGE_TEXT_MAX, "%.*f %s", unit > 0 && value < 99.95 ? 1 : 0,
                    value, units[unit]);
}

void stage_text_folder(char dst[STAGE_TEXT_NAME_MAX], unsigned uid)
{
    (void)ct_format(dst, STAGE_TEXT_NAME_MAX, "ctrun-stage-%u", uid);
}

void stage_text_key(char dst[STAGE_TEXT_NAME_MAX], const uint8_t key[16], int number)
{
    ct_hex_encode(dst, key, KEY_SHOWN);
    (void)ct_format(dst + 2 * (size_t)KEY_SHOWN,
                    STAGE_TEXT_NAME_MAX - 2 * (size_t)KEY_SHOWN, "-%d", number);
}

void stage_text_part(char dst[STAGE_TEXT_NAME_MAX], const char *path)
{
    uint8_t sum[CT_DIGEST_BYTES];

    ct_digest_of(sum, path, strlen(path));
    ct_hex_encode(dst, sum, PART_SHOWN);
}
