/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any text as a hostlist. A list that parses can be written, and parses to the same
 * list. */
#include "launcher/batch/hostlist.h"
#include "worker_sdk/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char written[HOSTLIST_BYTES_MAX * 2];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hostlist list;
    struct hostlist again;
    char *text = strndup((const char *)data, size);

    if (text && hostlist_parse(text, &list, NULL) == 0) {
        if (hostlist_parse(hostlist_format(&list, written, sizeof written), &again,
                           NULL) < 0 ||
            again.count != list.count)
            abort();
        for (size_t i = 0; i < list.count; i++)
            if (strcmp(list.names[i], again.names[i]) != 0)
                abort();
        hostlist_deinit(&again);
        hostlist_deinit(&list);
    }
    free(text);
    return 0;
}
