/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a stream of frames: each frame lies inside the stream, and encoding what was
 * decoded gives the same bytes back. */
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/wire/frame.h"

static void expect_same_bytes(const struct ct_frame *frame, const uint8_t *data,
                              size_t length)
{
    struct ct_buf out;

    ct_buf_init(&out, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    if (ct_frame_encode(&out, frame->kind, frame->body, frame->length) < 0 ||
        ct_buf_length(&out) != length || memcmp(ct_buf_data(&out), data, length) != 0)
        abort();
    ct_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_frame frame;
    int taken;

    while ((taken = ct_frame_decode(data, size, &frame)) > 0) {
        if ((size_t)taken > size || frame.body < data ||
            frame.body + frame.length > data + size)
            abort();
        if (frame.version == CT_FRAME_VERSION)
            expect_same_bytes(&frame, data, (size_t)taken);
        data += taken;
        size -= (size_t)taken;
    }
    return 0;
}
