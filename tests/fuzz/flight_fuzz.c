/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as a worker's record of its calls, which is printed in words and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "agent/postmortem/flight.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The header and the first entries get valid numbers, so that short inputs reach the entries. */
static void place(struct ct_flight *raw, const uint8_t *data, size_t size)
{
    const size_t head = offsetof(struct ct_flight, entry);
    const size_t entry = sizeof raw->entry[0];

    raw->magic = CT_FLIGHT_MAGIC;
    raw->version = CT_FLIGHT_VERSION;
    if (size >= 2) {
        raw->calls = data[0] % 4 == 3 ? UINT64_MAX - data[1] : data[1];
        raw->group[0].id = 1;
        data += 2;
        size -= 2;
    }
    memcpy(raw->group[0].name, data, size < 32 ? size : 32);
    memcpy((uint8_t *)raw + head, data, size < 8 * entry ? size : 8 * entry);
    for (unsigned i = 0; i < 8; i++)
        raw->entry[i].number = i + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_flight *raw = calloc(1, sizeof *raw);
    struct flight *flight = calloc(1, sizeof *flight);
    char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX];
    struct flight_place at;
    struct ct_buf text;

    if (!raw || !flight)
        abort();
    ct_buf_init(&text, 4 << 20);
    place(raw, data, size);
    if (flight_decode(raw, sizeof *raw - 1, flight) == 0 ||
        flight_decode(raw, sizeof *raw, flight) < 0 ||
        flight->call_count > CT_FLIGHT_ENTRIES)
        abort();
    if (flight_format(&text, flight, 1000) < 0 || flight_begin_trace(&text) < 0 ||
        flight_add_trace(&text, flight, 1000, true) < 0 || flight_end_trace(&text) < 0)
        abort();
    for (size_t i = 0; i < ct_buf_length(&text); i++)
        if (ct_buf_data(&text)[i] != '\n' &&
            (ct_buf_data(&text)[i] < ' ' || ct_buf_data(&text)[i] > '~'))
            abort(); /* terminals show this text */
    if (flight_find_place(&at, flight) &&
        flight_format_places(lines, &at, 1, 1000) != 1)
        abort();
    ct_buf_deinit(&text);
    free(flight);
    free(raw);
    return 0;
}
