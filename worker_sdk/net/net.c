/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/net.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

static int parse_network(char *text, struct ct_net_item *out)
{
    char *slash = strchr(text, '/');
    uint64_t bits;

    if (slash)
        *slash = '\0';
    if (ct_addr_parse(text, 0, &out->network) < 0)
        return -EINVAL;
    bits = out->network.any.sa_family == AF_INET ? 32 : 128;
    if (slash && ct_parse_u64(slash + 1, 0, bits, &bits) < 0)
        return -EINVAL;
    out->prefix = (uint8_t)bits;
    return 0;
}

static bool is_interface_name(const char *text, size_t length)
{
    return length > 0 && length < IF_NAMESIZE && !memchr(text, '/', length) &&
           !memchr(text, ' ', length) && !memchr(text, ':', length);
}

static int parse_item(const char *text, size_t length, struct ct_net_item *out)
{
    char copy[CT_ADDR_TEXT_MAX];

    if (length >= sizeof copy)
        return -EINVAL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (parse_network(copy, out) == 0)
        return 0;
    if (!is_interface_name(text, length))
        return -EINVAL;
    memcpy(out->name, text, length);
    return 0;
}

int ct_net_parse(const char *text, struct ct_net *out, struct ctrun_error *err)
{
    const char *rest = text;
    const char *item;
    size_t length;

    *out = (struct ct_net){0};
    if (!*text)
        return 0;
    while ((item = ct_next_field(&rest, ',', &length))) {
        if (out->count == CT_NET_ITEMS_MAX)
            return ct_fail(err, -EINVAL, "'%.80s': more than %d interfaces or networks",
                           text, CT_NET_ITEMS_MAX);
        if (parse_item(item, length, &out->items[out->count++]) < 0)
            return ct_fail(err, -EINVAL,
                           "'%.80s': not an interface (eth0), a network (10.1.0.0/16) "
                           "or an address",
                           text);
    }
    return 0;
}

static bool item_has(const struct ct_net_item *item, const struct ct_nic *nic)
{
    if (item->name[0])
        return strcmp(item->name, nic->name) == 0;
    return ct_addr_in_network(&nic->addr, &item->network, item->prefix);
}

bool ct_net_has(const struct ct_net *net, const struct ct_nic *nic)
{
    for (int i = 0; i < net->count; i++)
        if (item_has(&net->items[i], nic))
            return true;
    return net->count == 0;
}

int ct_net_list(const struct ct_net *net, struct ct_nic *out, int max)
{
    struct ct_nic all[CT_NICS_MAX];
    bool is_taken[CT_NICS_MAX] = {false};
    int count = 0;
    int n;

    if (net->count == 0)
        return ct_nic_list(out, max);
    if ((n = ct_nic_list(all, CT_NICS_MAX)) < 0)
        return n;
    for (int item = 0; item < net->count; item++)
        for (int i = 0; i < n && count < max; i++)
            if (!is_taken[i] && item_has(&net->items[item], &all[i])) {
                is_taken[i] = true;
                out[count++] = all[i];
            }
    return count;
}
