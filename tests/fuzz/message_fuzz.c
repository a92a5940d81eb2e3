/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes through the frame and message decoders. A message that decodes can be encoded, and
 * decodes to the same message. */
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(struct ct_buf *buf, const struct ct_message *message)
{
    ct_buf_init(buf, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    if (ct_message_encode(buf, message) < 0)
        abort();
}

/* Decoding makes text plain, so the first encoding may differ from the input; the second equals the
 * first. */
static void check_round_trip(const struct ct_message *message)
{
    static union ct_message_room room;
    struct ct_message again;
    struct ct_frame frame;
    struct ct_buf once, twice;

    encode(&once, message);
    if (ct_frame_decode(ct_buf_data(&once), ct_buf_length(&once), &frame) <= 0 ||
        ct_message_decode(&frame, &again, &room, sizeof room) != 0)
        abort();
    encode(&twice, &again);
    if (ct_buf_length(&once) != ct_buf_length(&twice) ||
        memcmp(ct_buf_data(&once), ct_buf_data(&twice), ct_buf_length(&once)) != 0)
        abort();
    ct_buf_deinit(&once);
    ct_buf_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static union ct_message_room room;
    struct ct_message message;

    while (size > 0) {
        struct ct_frame frame;
        int taken = ct_frame_decode(data, size, &frame);

        if (taken <= 0)
            break;
        if (ct_message_decode(&frame, &message, &room, sizeof room) == 0)
            check_round_trip(&message);
        data += taken;
        size -= (size_t)taken;
    }
    return 0;
}
