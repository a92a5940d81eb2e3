/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/pmi_card.h"

#include <errno.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/text_code.h"

static void exchange(char *text, char from, char to)
{
    while ((text = strchr(text, from)))
        *text++ = to;
}

/* ---- Token ----------------------------------------------------------------------------- */

static void format_token(char *dst, const struct ct_auth_token *token)
{
    if (token->length > 0)
        ct_hex_encode(dst, token->bytes, token->length);
    else
        (void)ct_copy(dst, 2, "-");
}

static int parse_token(struct ct_auth_token *out, const char *text, size_t length)
{
    if (length == 1 && *text == '-')
        return 0;
    if (length / 2 < CT_AUTH_TOKEN_MIN_BYTES || length / 2 > CT_AUTH_TOKEN_MAX_BYTES ||
        ct_hex_decode(out->bytes, text, length) < 0)
        return -EBADMSG;
    out->length = length / 2;
    return 0;
}

/* ---- The whole ------------------------------------------------------------------------- */

int pmi_card_format(char dst[PMI2_VALUE_MAX], const struct pmi_card *card)
{
    struct server_record server = card->server;
    char text[SERVER_RECORD_TEXT_MAX];
    char token[2 * CT_AUTH_TOKEN_MAX_BYTES + 2];
    int rc;

    format_token(token, &card->token);
    for (; server.count > 0; server.count--) {
        if ((rc = server_record_format(text, sizeof text, &server)) < 0)
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
    return server_record_parse(&out->server, host, strlen(host));
}
