/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as an answer of etcd, and as the record that a server wrote about itself. */
#include "launcher/etcd/json_etcd.h"
#include "launcher/net/server_record.h"
#include "worker_sdk/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_host(const char *text, size_t length)
{
    struct server_record host, again;
    char written[SERVER_RECORD_TEXT_MAX];
    int written_length;

    if (server_record_parse(&host, text, length) < 0)
        return;
    written_length = server_record_format(written, sizeof written, &host);
    if (written_length < 0 ||
        server_record_parse(&again, written, (size_t)written_length) < 0 ||
        again.count != host.count || strcmp(again.name, host.name) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_etcd_reply reply;
    char *text = strndup((const char *)data, size);

    if (json_etcd_read(&reply, (const char *)data, size) == 0) {
        for (size_t i = 0; i < reply.count; i++)
            check_host((const char *)reply.kvs[i].value, reply.kvs[i].length);
        json_etcd_reply_deinit(&reply);
    }
    if (text)
        check_host(text, strlen(text));
    free(text);
    return 0;
}
