/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/fingerprint.h"

#include "worker_sdk/base/str.h"

void fingerprint_format(char *dst, size_t size, const struct config *config)
{
    (void)ct_format(dst, size, "--nnodes=%d:%d --max-restarts=%u --rdzv-backend=%s",
                    config->nodes.min, config->nodes.max, config->max_restarts,
                    config_backend_name(config->backend)); /* fits */
}

/* FNV-1a over the text: what is compared is what is shown. */
uint64_t fingerprint_of(const struct config *config)
{
    char text[FINGERPRINT_TEXT_MAX];
    uint64_t hash = 14695981039346656037u;

    fingerprint_format(text, sizeof text, config);
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    return hash;
}
