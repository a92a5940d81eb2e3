/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the keys of a store; only ctrunctl needs this. */
#include <errno.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/client/store_private.h"

/* The reply has been validated: counts and lengths are correct. */
static uint64_t read_u64(const uint8_t *at)
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* Copies the keys without the leading '/' that clients add. */
static char **copy_keys(const uint8_t *reply, size_t length, size_t count)
{
    char **keys = ct_zalloc(count * sizeof *keys + length);
    char *text = (char *)(keys + count);
    const uint8_t *cursor = reply + sizeof(uint64_t);

    for (size_t i = 0; keys && i < count; i++) {
        struct ct_tcpstore_blob key = ct_tcpstore_next(&cursor);
        const size_t slash = key.length > 0 && key.data[0] == '/';

        keys[i] = text;
        memcpy(text, key.data + slash, key.length - slash);
        text += key.length - slash;
        *text++ = '\0'; /* fits: the length took eight bytes */
    }
    return keys;
}

int ct_store_list_keys(struct ctrun_store *store, char ***keys, size_t *count,
                       struct ctrun_error *err)
{
    const struct ct_tcpstore_request request = {.query = CT_TCPSTORE_LIST_KEYS};
    int rc;

    if (!ct_store_is_modern(store))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "store %s:%d: the server cannot list keys: it speaks the "
                       "protocol of torch <= 2.0",
                       store->host, store->port);
    if ((rc = ct_store_ask(store, &request, NULL, err)) < 0)
        return rc;
    *count = (size_t)read_u64(ct_buf_data(&store->in));
    *keys = copy_keys(ct_buf_data(&store->in), (size_t)rc, *count);
    ct_buf_consume(&store->in, (size_t)rc);
    return *keys ? 0 : ct_fail(err, -ENOMEM, "store: keys: out of memory");
}
