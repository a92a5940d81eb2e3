/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/fingerprint.h"

#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

void fingerprint_format(char *dst, size_t size, const struct config *config)
{
    const bool survives = config->stop.survive_ms && config->run.nodes.max > 1;

    (void)ct_format(dst, size,
                    "--nnodes=%d:%d --max-restarts=%u --rdzv-backend=%s%s%s%s%s%s",
                    config->run.nodes.min, config->run.nodes.max,
                    config->run.max_restarts, config_backend_name(config->rdzv.backend),
                    config->rdzv.worker_serves ? " " CT_ENV_NO_SHARED_STORE "=1" : "",
                    config->work.has_jax ? " --jax" : "", survives ? " --survive=" : "",
                    !survives                  ? ""
                    : config->stop.frees_peers ? "torch"
                                               : "sdk",
                    survives && config->stop.survive_replace ? " --survive-replace"
                                                             : ""); /* fits */
}

/* The hash of the text that is shown when the values differ. */
uint64_t fingerprint_of(const struct config *config)
{
    char text[FINGERPRINT_TEXT_MAX];

    fingerprint_format(text, sizeof text, config);
    return ct_hash(text, strlen(text));
}
