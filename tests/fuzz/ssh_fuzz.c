/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as messages between the ctruns of a --hosts run, and as a job. What decodes must encode
 * to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct ct_buf *buf, const uint8_t *data, size_t size)
{
    if (ct_buf_length(buf) != size || memcmp(ct_buf_data(buf), data, size) != 0)
        abort();
}

static void try_job(const uint8_t *data, size_t size)
{
    struct ssh_job job;
    struct ct_buf buf;

    if (ssh_job_decode(&job, data, size) < 0)
        return;
    ct_buf_init(&buf, SSH_JOB_MAX_BYTES);
    if (ssh_job_encode(&buf, &job, job.first, ssh_job_count(&job)) < 0)
        abort();
    check_same(&buf, data, size);
    ct_buf_deinit(&buf);
    ssh_job_deinit(&job);
}

static void try_messages(const uint8_t *data, size_t size)
{
    struct ssh_message message;
    struct ct_frame frame;
    struct ct_buf buf;
    int taken;

    while ((taken = ct_frame_decode(data, size, &frame)) > 0) {
        if (ssh_message_decode(&frame, &message) == 0) {
            ct_buf_init(&buf, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
            if (ssh_message_encode(&buf, &message) < 0)
                abort();
            check_same(&buf, data, (size_t)taken);
            ct_buf_deinit(&buf);
        }
        data += taken;
        size -= (size_t)taken;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_messages(data, size);
    try_job(data, size);
    return 0;
}
