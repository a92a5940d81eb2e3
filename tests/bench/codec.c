/* SPDX-License-Identifier: Apache-2.0 */
/* What a message costs: encodes and decodes HEARTBEAT, or START of 64 nodes, COUNT times.
 *
 *     valgrind --tool=callgrind --callgrind-out-file=/dev/null build/release/tests/bench/codec start 1000
 *
 * Less the same with COUNT 0, by 1000: instructions a message. On 26 November 2026, beside f691615, where a message held
 * its body, 46.7 KiB on the stacks of 31 functions (this program with that interface):
 *
 *                  f691615    today
 *     HEARTBEAT        819      710
 *     START          2,750    2,948    and the 2,168 bytes that are cleared, by one instruction that callgrind counts
 *                                      for each of them
 *
 * START has more fields today, and each text is checked for control sequences of terminals. */
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/message.h"

static void fill_start(struct ct_start *start)
{
    start->generation = 7;
    start->group_world_size = 64;
    start->world_size = 512;
    start->master_port = 29400;
    (void)snprintf(start->master_addr, sizeof start->master_addr, "10.77.0.11");
    (void)snprintf(start->master_host, sizeof start->master_host, "node1");
    start->addr_count = 2;
    for (int i = 0; i < 2; i++)
        (void)snprintf(start->addrs[i], sizeof start->addrs[i], "10.78.0.%d", i);
    (void)snprintf(start->layout, sizeof start->layout, "64x8");
}

int main(int argc, char **argv)
{
    static const struct ct_heartbeat heartbeat = {.generation = 7, .sequence = 1};
    static struct ct_start start;
    static union ct_message_room room;
    struct ct_message message = {CT_MESSAGE_HEARTBEAT, .heartbeat = &heartbeat}, back;
    uint64_t count;
    struct ct_frame frame;
    struct ct_buf buf;

    if (argc != 3 || ct_parse_u64(argv[2], 0, UINT32_MAX, &count) < 0)
        return 2;
    if (strcmp(argv[1], "start") == 0)
        message = (struct ct_message){CT_MESSAGE_START, .start = &start};
    fill_start(&start);
    ct_buf_init(&buf, CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        if (ct_message_encode(&buf, &message) < 0 ||
            ct_frame_decode(ct_buf_data(&buf), ct_buf_length(&buf), &frame) <= 0 ||
            ct_message_decode(&frame, &back, &room, sizeof room) < 0)
            return 1;
        ct_buf_consume(&buf, ct_buf_length(&buf));
    }
    ct_buf_deinit(&buf);
    return 0;
}
