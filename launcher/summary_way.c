/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/summary_way.h"

#include <string.h>

#include "worker_sdk/base/str.h"

void summary_way_format(struct messages_block *out, const struct ct_failure *failure)
{
    const char *rest = failure->text;
    size_t length = 0;
    const char *line = ct_next_field(&rest, '\n', &length);
    bool has_link = false;

    messages_begin(out, CTRUN_E_UNREACHABLE, "%s %.*s", failure->host, (int)length,
                   line ? line : "");
    while ((line = ct_next_field(&rest, '\n', &length))) {
        const char *colon = memchr(line, ':', length);
        const size_t label = colon ? (size_t)(colon - line) : 0;
        char name[32];

        if (!label || label + 2 > length)
            continue; /* cut */
        (void)ct_format(name, sizeof name, "%.*s", (int)label, line);
        messages_add(out, name, "%.*s", (int)(length - label - 2), colon + 2);
        has_link |= strcmp(name, "works") == 0;
    }
    if (has_link)
        messages_add(
            out, "likely",
            "a firewall lets the port of the rendezvous through, and no other");
    messages_add(out, "do",
                 "open the ports and name them: --port-range A-B; or another network: "
                 "--net IFACE|CIDR");
}
