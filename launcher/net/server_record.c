/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/net/server_record.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

static const char first_line[] = "ctrun 1";

static bool has(const struct server_record *record, const struct ct_addr *addr)
{
    for (size_t i = 0; i < record->count; i++)
        if (ct_addr_is_same_host(&record->addrs[i], addr))
            return true;
    return false;
}

static void add(struct server_record *out, const struct ct_addr *addr, uint16_t port)
{
    if (out->count == CT_ADDRS_MAX || has(out, addr))
        return;
    out->addrs[out->count] = *addr;
    ct_addr_set_port(&out->addrs[out->count++], port);
}

void server_record_fill(struct server_record *out, const char *name,
                        const struct addresses *addresses, uint16_t port)
{
    struct ct_addr number;

    *out = (struct server_record){0};
    (void)ct_copy(out->name, sizeof out->name, name); /* cut: for people */
    if (addresses->local[0] && ct_addr_parse(addresses->local, port, &number) == 0)
        add(out, &number, port);
    for (int i = 0; i < addresses->count && !addresses->has_bind; i++)
        if (!addresses->list[i].is_loopback &&
            !ct_addr_is_link_local(&addresses->list[i].addr))
            add(out, &addresses->list[i].addr, port);
    for (int i = 0; i < addresses->count && out->count == 0; i++)
        add(out, &addresses->list[i].addr, port); /* a machine without a network */
}

int server_record_format(char *dst, size_t size, const struct server_record *record)
{
    char text[CT_ADDR_TEXT_MAX];
    int used = ct_format(dst, size, "%s\n%s\n%d\n", first_line, record->name,
                         record->count ? ct_addr_port(&record->addrs[0]) : 0);

    for (size_t i = 0; used >= 0 && i < record->count; i++) {
        ct_addr_format_host(text, &record->addrs[i]);
        used = ct_append(dst, size, "%s\n", text);
    }
    return used;
}

/* The next line, copied; false at the end or when it is too long. */
static bool take_line(const char **cursor, char *dst, size_t size)
{
    size_t length;
    const char *line = ct_next_field(cursor, '\n', &length);

    return line && ct_format(dst, size, "%.*s", (int)length, line) >= 0;
}

int server_record_parse(struct server_record *out, const char *text, size_t length)
{
    const char *cursor = text;
    char line[CT_HOST_MAX];
    uint64_t port;

    *out = (struct server_record){0};
    if (length >= SERVER_RECORD_TEXT_MAX || strlen(text) != length ||
        !take_line(&cursor, line, sizeof line) || strcmp(line, first_line) != 0 ||
        !take_line(&cursor, out->name, sizeof out->name) ||
        !take_line(&cursor, line, sizeof line) ||
        ct_parse_u64(line, 1, UINT16_MAX, &port) < 0)
        return -EBADMSG;
    while (out->count < CT_ADDRS_MAX && take_line(&cursor, line, sizeof line)) {
        char again[CT_ADDR_TEXT_MAX] = "";
        struct ct_addr addr;

        if (ct_addr_parse(line, (int)port, &addr) == 0)
            ct_addr_format_host(again, &addr);
        if (*again &&
            strcmp(again, line) == 0) /* as server_record_format() writes it */
            add(out, &addr, (uint16_t)port);
    }
    return out->count > 0 ? 0 : -EBADMSG;
}
