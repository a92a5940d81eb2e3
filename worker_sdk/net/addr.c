/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/addr.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>

#include "worker_sdk/base/str.h"

#define NOT_FOUR_NUMBERS                                                               \
    "%s is not an address, which has four numbers; is it a port? write HOST:PORT"

static int parse_port(const char *text, int *port)
{
    uint64_t value;

    if (strlen(text) > 5 || ct_parse_u64(text, 0, 65535, &value) < 0)
        return -EINVAL;
    *port = (int)value;
    return 0;
}

static bool is_host_text(const char *text)
{
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("_.:-%", *text))
            return false;
    return true;
}

/* Splits at the colon that introduces a port; a bare v6 address has more than one. */
static int split(char *text, char **host, const char **port)
{
    char *colon;

    *host = text;
    *port = NULL;
    if (*text == '[') {
        char *end = strchr(text, ']');

        if (!end || (end[1] && end[1] != ':'))
            return -EINVAL;
        *host = text + 1;
        *port = end[1] ? end + 2 : NULL;
        *end = '\0';
        return 0;
    }
    colon = strchr(text, ':');
    if (colon && colon == strrchr(text, ':')) {
        *colon = '\0';
        *port = colon + 1;
    }
    return 0;
}

/* getaddrinfo() reads 29888 as 0.0.116.192 and 10.1 as 10.0.0.1, which is never intended. No host
 * name has this form. */
static bool is_odd_number(const char *host)
{
    struct in_addr v4;

    return inet_aton(host, &v4) != 0 && inet_pton(AF_INET, host, &v4) != 1;
}

/* The first `length` bytes of `text`. */
static bool is_v6(const char *text, size_t length)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr v6;

    return ct_format(address, sizeof address, "%.*s", (int)length, text) >= 0 &&
           inet_pton(AF_INET6, address, &v6) == 1;
}

/* "::1:29500", "fe80::1%eth0:29500": a port behind an address without brackets. No name has a colon, and no zone. */
static bool is_bad_v6(const char *host)
{
    const size_t length = strcspn(host, "%");

    return strchr(host, ':') && (!is_v6(host, length) || strchr(host + length, ':'));
}

/* The colon of a port that a person may have meant, in an address without brackets: "::1:2379". The last part of an
 * address may have four digits, too: whoever means it writes brackets. NULL: none. */
static const char *find_doubtful_port(const char *text, size_t length)
{
    const char *colon = memrchr(text, ':', length);
    const size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

    return colon && digits == 4 && colon + 1 + digits == text + length &&
                   is_v6(text, length) && is_v6(text, (size_t)(colon - text))
               ? colon
               : NULL;
}

int ct_endpoint_parse(const char *text, struct ct_endpoint *out,
                      struct ctrun_error *err)
{
    char copy[CT_HOST_MAX + 16];
    const char *port;
    char *host;
    size_t length = strlen(text);

    *out = (struct ct_endpoint){.port = -1};
    text = ct_trim(text, &length);
    if (length >= sizeof copy)
        return ct_fail(err, -EINVAL, "endpoint '%.40s...': too long", text);
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (split(copy, &host, &port) < 0 || !is_host_text(host) || is_bad_v6(host))
        return ct_fail(err, -EINVAL,
                       "endpoint '%.*s': not host, host:port or [v6]:port", (int)length,
                       text);
    if (is_odd_number(host))
        return ct_fail(err, -EINVAL, "endpoint '%.*s': " NOT_FOUR_NUMBERS, (int)length,
                       text, host);
    if (port && parse_port(port, &out->port) < 0)
        return ct_fail(err, -EINVAL, "endpoint '%.*s': the port must be 0 to 65535",
                       (int)length, text);
    if (ct_copy(out->host, sizeof out->host, host) < 0)
        return ct_fail(err, -EINVAL, "endpoint '%.40s...': host name too long", text);
    return 0;
}

int ct_endpoint_parse_typed(const char *text, struct ct_endpoint *out,
                            struct ctrun_error *err)
{
    size_t length = strlen(text);
    const char *trimmed = ct_trim(text, &length);
    const char *colon = find_doubtful_port(trimmed, length);

    if (colon)
        return ct_fail(
            err, -EINVAL,
            "endpoint '%.*s': is %.4s the port? write [%.*s]:%.4s, else [%.*s]",
            (int)length, trimmed, colon + 1, (int)(colon - trimmed), trimmed, colon + 1,
            (int)length, trimmed);
    return ct_endpoint_parse(text, out, err);
}

int ct_addr_parse(const char *host, int port, struct ct_addr *out)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;

    if (is_odd_number(host) || getaddrinfo(host, NULL, &hints, &found) != 0)
        return -EINVAL;
    *out = (struct ct_addr){.length = found->ai_addrlen};
    memcpy(&out->any, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    ct_addr_set_port(out, port);
    return 0;
}

bool ct_addr_is_localhost(const char *host)
{
    static const char name[] = "localhost";
    const size_t dotted = strlen(host);
    const size_t length = dotted - (dotted > 0 && host[dotted - 1] == '.');
    const size_t begin = length - (sizeof name - 1);

    return length >= sizeof name - 1 &&
           strncasecmp(host + begin, name, sizeof name - 1) == 0 &&
           (begin == 0 || (begin > 1 && host[begin - 1] == '.'));
}

static int resolve_localhost(int port, struct ct_addr *out, int max)
{
    static const char *const numbers[] = {"127.0.0.1", "::1"}; /* v4 is everywhere */
    int count = 0;

    while (count < max && count < 2 &&
           ct_addr_parse(numbers[count], port, &out[count]) == 0)
        count++;
    return count;
}

int ct_addr_resolve(const char *host, int port, struct ct_addr *out, int max,
                    struct ctrun_error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int count = 0;
    int rc;

    if (max > 0 && ct_addr_parse(host, port, out) == 0)
        return 1;
    if (max > 0 && ct_addr_is_localhost(host))
        return resolve_localhost(port, out, max);
    if (is_odd_number(host))
        return ct_fail(err, CTRUN_E_DNS, "host '%s': " NOT_FOUR_NUMBERS, host, host);
    if ((rc = getaddrinfo(host, NULL, &hints, &found)) != 0)
        return ct_fail(err, CTRUN_E_DNS, "host '%s': %s", host,
                       rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    for (struct addrinfo *it = found; it && count < max; it = it->ai_next) {
        if (it->ai_addrlen > sizeof out->v6)
            continue;
        out[count] = (struct ct_addr){.length = it->ai_addrlen};
        memcpy(&out[count].any, it->ai_addr, it->ai_addrlen);
        ct_addr_set_port(&out[count++], port);
    }
    freeaddrinfo(found);
    return count ? count : ct_fail(err, CTRUN_E_DNS, "host '%s': no address", host);
}

/* The IPv4 address of a v4 or v4-mapped v6 address; false when it is neither. */
static bool as_v4(const struct ct_addr *addr, struct in_addr *out)
{
    if (addr->any.sa_family == AF_INET) {
        *out = addr->v4.sin_addr;
        return true;
    }
    if (addr->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&addr->v6.sin6_addr))
        return false;
    memcpy(out, addr->v6.sin6_addr.s6_addr + 12, sizeof *out);
    return true;
}

bool ct_addr_is_loopback(const struct ct_addr *addr)
{
    struct in_addr v4;

    if (as_v4(addr, &v4))
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    return addr->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&addr->v6.sin6_addr);
}

bool ct_addr_is_same_host(const struct ct_addr *a, const struct ct_addr *b)
{
    struct in_addr a4;
    struct in_addr b4 = {0}; /* gcc 11 does not see that both are set */
    bool a_is_v4 = as_v4(a, &a4);

    if (a_is_v4 != as_v4(b, &b4))
        return false;
    if (a_is_v4)
        return a4.s_addr == b4.s_addr;
    return a->any.sa_family == AF_INET6 && b->any.sa_family == AF_INET6 &&
           IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr);
}

int ct_addr_port(const struct ct_addr *addr)
{
    return ntohs(addr->any.sa_family == AF_INET ? addr->v4.sin_port
                                                : addr->v6.sin6_port);
}

void ct_addr_set_port(struct ct_addr *addr, int port)
{
    if (addr->any.sa_family == AF_INET)
        addr->v4.sin_port = htons((uint16_t)port);
    else
        addr->v6.sin6_port = htons((uint16_t)port);
}

void ct_addr_format_host(char *dst, const struct ct_addr *addr)
{
    char name[IF_NAMESIZE];
    struct in_addr v4;

    dst[0] = '\0';
    if (as_v4(addr, &v4)) {
        (void)inet_ntop(AF_INET, &v4, dst, CT_ADDR_TEXT_MAX);
        return;
    }
    if (addr->any.sa_family != AF_INET6)
        return;
    (void)inet_ntop(AF_INET6, &addr->v6.sin6_addr, dst, CT_ADDR_TEXT_MAX);
    if (addr->v6.sin6_scope_id && if_indextoname(addr->v6.sin6_scope_id, name))
        (void)ct_append(dst, CT_ADDR_TEXT_MAX, "%%%s", name);
}

void ct_addr_format(char *dst, const struct ct_addr *addr)
{
    char host[CT_ADDR_TEXT_MAX];

    ct_addr_format_host(host, addr);
    if (strchr(host, ':'))
        (void)ct_format(dst, CT_ADDR_TEXT_MAX, "[%s]:%d", host, ct_addr_port(addr));
    else
        (void)ct_format(dst, CT_ADDR_TEXT_MAX, "%s:%d", host, ct_addr_port(addr));
}

void ct_addr_key(uint8_t key[16], const struct ct_addr *addr)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    memset(key, 0, 16);
    if (addr->any.sa_family == AF_INET) {
        memcpy(key, mapped, sizeof mapped);
        memcpy(key + sizeof mapped, &addr->v4.sin_addr, 4);
    } else if (addr->any.sa_family == AF_INET6) {
        memcpy(key, &addr->v6.sin6_addr, 16);
    }
}

static bool is_v4_key(const uint8_t key[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(key, mapped, sizeof mapped) == 0;
}

bool ct_addr_in_network(const struct ct_addr *addr, const struct ct_addr *network,
                        unsigned prefix)
{
    uint8_t a[16], b[16];

    ct_addr_key(a, addr);
    ct_addr_key(b, network);
    if (is_v4_key(a) != is_v4_key(b))
        return false;
    if (is_v4_key(a))
        prefix += 96;
    if (prefix > 128 || memcmp(a, b, prefix / 8) != 0)
        return false;
    return prefix % 8 == 0 || (a[prefix / 8] ^ b[prefix / 8]) >> (8 - prefix % 8) == 0;
}

bool ct_addr_is_link_local(const struct ct_addr *addr)
{
    return addr->any.sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&addr->v6.sin6_addr);
}
