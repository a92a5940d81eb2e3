/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for the run, made by the openssl program: a CA whose key all nodes derive from one
 * secret, so that no key is sent, and one certificate for this node. Valid from 2020 on, because
 * clocks of hosts differ. They have no CN: etcd's gateway refuses a CN. */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/error.h"

enum {
    HA_SECRET_BYTES = 32
};

/* Writes ca.pem, me.pem and me.key (0600) into the current folder. The CA's key does not stay
 * there. 0, or a negative errno. */
int ha_certs_make(const char *openssl, const uint8_t secret[HA_SECRET_BYTES],
                  const char *addr, struct ctrun_error *err);
