/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs to record a call (client/flight.h): begin and end, COUNT times, in ns each; beside
 * it the one read of the clock that is a part of it (the begin uses the deadline's).
 *
 *     flight 10000000 */
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/flight.h"

int main(int argc, char **argv)
{
    struct ct_flight_call call = {.name = "all_reduce", .count = 1000, .dtype = 5};
    uint64_t count, start_ns, flight_ns, clock_ns;
    volatile uint64_t sink;

    if (argc != 2 || ct_parse_u64(argv[1], 1, UINT32_MAX, &count) < 0)
        return 2;
    call.group = ct_flight_add_group("bench", 0, 1);
    start_ns = ct_now_ns();
    for (call.sequence = 1; call.sequence <= count; call.sequence++)
        ct_flight_end(ct_flight_begin(&call), 0);
    flight_ns = ct_now_ns() - start_ns;
    start_ns = ct_now_ns();
    for (uint64_t i = 0; i < count; i++)
        sink = ct_now_ns();
    clock_ns = ct_now_ns() - start_ns;
    (void)sink;
    printf("%.1f ns a call, %.1f ns of it for a look at the clock\n",
           (double)flight_ns / (double)count, (double)clock_ns / (double)count);
    return 0;
}
