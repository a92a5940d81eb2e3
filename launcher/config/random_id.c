/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/random_id.h"

#include <errno.h>
#include <sys/random.h>

#include "worker_sdk/base/str.h"

int random_id_make(char *dst, size_t size, struct ctrun_error *err)
{
    uint8_t b[16];

    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return ct_fail(err, -errno, "the kernel gave no random bytes for an id: %s",
                       strerror(errno));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    (void)ct_format(
        dst, size,
        "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
        b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
        b[13], b[14], b[15]);
    return 0;
}
