/* SPDX-License-Identifier: Apache-2.0 */
/* Four hostile connections to one store. The input is a script. A byte of it says which client acts
 * (2 bits), what it does (1 bit: send, or read and close) and how many of the following bytes are
 * sent (5 bits; 31 means 255). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "rendezvous/store/store.h"

enum {
    CLIENTS = 4,
    LONG = 255
};

struct fuzz {
    struct store *store;
    struct store_client *clients[CLIENTS];
};

static void on_output(void *context)
{
    struct store_client **client = context;

    if (!ct_buf_length(store_output(*client)))
        abort(); /* called without output */
}

static void drop(struct fuzz *fuzz, int i)
{
    store_remove_client(fuzz->clients[i]);
    fuzz->clients[i] = NULL;
}

static void send_bytes(struct fuzz *fuzz, int i, const uint8_t *data, size_t length)
{
    if (!fuzz->clients[i])
        fuzz->clients[i] = store_add_client(fuzz->store, on_output, &fuzz->clients[i]);
    if (fuzz->clients[i] && store_receive(fuzz->clients[i], data, length) < 0)
        drop(fuzz, i);
}

/* Reads half of what is there, or closes when there is nothing to read. */
static void read_or_close(struct fuzz *fuzz, int i)
{
    struct ct_buf *out;

    if (!fuzz->clients[i])
        return;
    out = store_output(fuzz->clients[i]);
    if (!ct_buf_length(out)) {
        drop(fuzz, i);
        return;
    }
    ct_buf_consume(out, (ct_buf_length(out) + 1) / 2);
    if (store_resume(fuzz->clients[i]) < 0)
        drop(fuzz, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz fuzz = {0};

    if (store_create(&fuzz.store) < 0)
        return 0;
    store_set_limits(fuzz.store, 1 << 20, 1 << 20);
    while (size) {
        int client = *data & 3;
        size_t length = *data >> 3 == 31 ? LONG : *data >> 3;
        int is_reading = *data >> 2 & 1;

        data++;
        size--;
        if (is_reading) {
            read_or_close(&fuzz, client);
            continue;
        }
        length = length < size ? length : size;
        send_bytes(&fuzz, client, data, length);
        data += length;
        size -= length;
    }
    store_destroy(fuzz.store);
    return 0;
}
