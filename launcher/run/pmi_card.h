/* SPDX-License-Identifier: Apache-2.0 */
/* What the serving task publishes through srun's PMI: where it serves, and the run's token if it
 * has made one. It is one value of PMI-2's key-value space: no semicolon, no newline. Pure.
 *
 *     TOKEN in hex, or "-"|ctrun 1|node1|41234|10.0.0.11|fd00::11| */
#pragma once

#include "launcher/net/server_record.h"
#include "launcher/pmi/pmi2.h"
#include "worker_sdk/wire/auth.h"

#define PMI_CARD_KEY "ctrun-rendezvous"

struct pmi_card {
    struct ct_auth_token token; /* empty: not published */
    struct server_record server;
};

/* 0, or -ENAMETOOLONG, -EINVAL: a name or token that does not fit. Addresses that do not fit are
 * left out, the last first. */
int pmi_card_format(char dst[PMI2_VALUE_MAX], const struct pmi_card *card);
/* 0 or -EBADMSG. */
int pmi_card_parse(struct pmi_card *out, const char *text);
