/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes through the frame and message decoders; what decodes must encode to the same. */
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/wire/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct ct_frame *frame,
                             const struct ct_message *message)
{
    struct ct_buf buf;

    ct_buf_init(&buf, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    if (ct_message_encode(&buf, message) < 0 ||
        ct_buf_length(&buf) != CT_FRAME_HEADER_BYTES + frame->length ||
        memcmp(ct_buf_data(&buf) + CT_FRAME_HEADER_BYTES, frame->body, frame->length) !=
            0)
        abort();
    ct_buf_deinit(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ct_message message;

    while (size > 0) {
        struct ct_frame frame;
        int taken = ct_frame_decode(data, size, &frame);

        if (taken <= 0)
            break;
        if (ct_message_decode(&frame, &message) == 0)
            check_round_trip(&frame, &message);
        data += taken;
        size -= (size_t)taken;
    }
    return 0;
}
