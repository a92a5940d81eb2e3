/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as a PMI-2 server's answers, and as the card of another task. A card that
 * parses can be written, and parses to the same card. The first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "launcher/run/pmi_card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_body(const char *text, size_t size)
{
    static char body[PMI2_BODY_MAX + 1];
    struct pmi2_answer answer;
    int length;

    if (size < PMI2_LENGTH_BYTES || (length = pmi2_parse_length(text)) < 0 ||
        (size_t)length > size - PMI2_LENGTH_BYTES)
        return;
    memcpy(body, text + PMI2_LENGTH_BYTES, (size_t)length);
    if (pmi2_parse(&answer, body, (size_t)length) < 0)
        return;
    for (size_t i = 0; i < answer.count; i++)
        if (!pmi2_find(&answer, answer.fields[i].key) ||
            strlen(answer.fields[i].value) > (size_t)length)
            abort();
    (void)pmi2_check(&answer, "kvs-get");
}

static void try_card(const char *text)
{
    static struct pmi_card card;
    static struct pmi_card again;
    char written[PMI2_VALUE_MAX];

    if (pmi_card_parse(&card, text) < 0 || pmi_card_format(written, &card) < 0)
        return;
    if (pmi_card_parse(&again, written) < 0 ||
        again.token.length != card.token.length ||
        memcmp(again.token.bytes, card.token.bytes, card.token.length) != 0 ||
        again.server.count != card.server.count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = size > 0 ? strndup((const char *)data + 1, size - 1) : NULL;

    if (!text)
        return 0;
    switch (data[0] % 3) {
    case 0: (void)pmi2_check_init(text); break;
    case 1: try_body((const char *)data + 1, size - 1); break;
    default: try_card(text); break;
    }
    free(text);
    return 0;
}
