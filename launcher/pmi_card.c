/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/pmi_card.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

static void exchange(char *text, char from, char to)
{
    while ((text = strchr(text, from)))
        *text++ = to;
}

/* ---- Token ----------------------------------------------------------------------------- */

static int format_token(char *dst, size_t size, const struct ct_auth_token *token)
{
    int used = token->length ? 0 : ct_copy(dst, size, "-");

    for (size_t i = 0; used >= 0 && i < token->length; i++) {
        int n = ct_format(dst + used, size - (size_t)used, "%02x", token->bytes[i]);

        used = n < 0 ? n : used + n;
    }
    return used;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_token(struct ct_auth_token *out, const char *text, size_t length)
{
    if (length == 1 && *text == '-')
        return 0;
    if (length % 2 || length / 2 < CT_AUTH_TOKEN_MIN_BYTES ||
        length / 2 > CT_AUTH_TOKEN_MAX_BYTES)
        return -EBADMSG;
    for (size_t i = 0; i < length; i += 2) {
        const int high = digit_of(text[i]);
        const int low = digit_of(text[i + 1]);

        if (high < 0 || low < 0)
            return -EBADMSG;
        out->bytes[i / 2] = (uint8_t)(high * 16 + low);
    }
    out->length = length / 2;
    return 0;
}

/* ---- The whole ------------------------------------------------------------------------- */

int pmi_card_format(char dst[PMI2_VALUE_MAX], const struct pmi_card *card)
{
    struct etcd_host host = card->host;
    char text[ETCD_HOST_TEXT_MAX];
    char token[2 * CT_AUTH_TOKEN_MAX_BYTES + 2];
    int rc = format_token(token, sizeof token, &card->token);

    if (rc < 0)
        return rc;
    for (; host.count > 0; host.count--) {
        if ((rc = etcd_host_format(text, sizeof text, &host)) < 0)
            return rc;
        exchange(text, '\n', '|');
        if (strpbrk(text, ";\n"))
            return -EINVAL;
        if (ct_format(dst, PMI2_VALUE_MAX, "%s|%s", token, text) >= 0)
            return 0;
    }
    return -ENAMETOOLONG;
}

int pmi_card_parse(struct pmi_card *out, const char *text)
{
    const char *bar = strchr(text, '|');
    char host[PMI2_VALUE_MAX];

    *out = (struct pmi_card){0};
    if (!bar || strchr(text, '\n') || ct_copy(host, sizeof host, bar + 1) < 0 ||
        parse_token(&out->token, text, (size_t)(bar - text)) < 0)
        return -EBADMSG;
    exchange(host, '|', '\n');
    return etcd_host_parse(&out->host, host, strlen(host));
}
