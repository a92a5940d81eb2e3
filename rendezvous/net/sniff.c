/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/net/sniff.h"

#include "worker_sdk/wire/frame.h"

enum {
    STORE_QUERY_MAX = 0x12
}; /* BARRIER; TLS begins with 0x16, so the range must be tight */

enum sniff_kind sniff_first_bytes(const uint8_t *data, size_t length)
{
    if (length == 0)
        return SNIFF_MORE;
    if (data[0] == CT_FRAME_MAGIC_0)
        return SNIFF_FRAME;
    if (data[0] <= STORE_QUERY_MAX)
        return SNIFF_STORE;
    if (data[0] >= 'A' && data[0] <= 'Z')
        return SNIFF_HTTP;
    return SNIFF_FOREIGN;
}
