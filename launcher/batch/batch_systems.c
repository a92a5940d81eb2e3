/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/batch/batch_systems.h"

#include "launcher/batch/slurm.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

int batch_find(struct batch_place *out, const struct batch_source *from,
               struct ctrun_error *err)
{
    static int (*const readers[])(struct batch_place *, const struct batch_source *,
                                  struct ctrun_error *) = {
        slurm_read,     batch_flux_read, batch_mpi_read,
        batch_pbs_read, batch_lsf_read,  batch_kubernetes_read,
    };
    int rc = 0;

    for (size_t i = 0; i < sizeof readers / sizeof *readers && rc == 0; i++) {
        *out = (struct batch_place){0};
        rc = readers[i](out, from, err);
        if (rc <= 0)
            batch_place_deinit(out);
    }
    return rc;
}

int batch_end(int64_t *end_s, const struct batch_source *from, struct ctrun_error *err)
{
    const char *text = batch_text(from, CT_ENV_END_TIME);
    uint64_t seconds = 0;

    *end_s = slurm_end(from);
    if (!text)
        return 0;
    if (ct_parse_u64(text, 0, INT64_MAX, &seconds) < 0)
        return ct_fail(err, CTRUN_E_BAD_ENVIRONMENT,
                       CT_ENV_END_TIME
                       "='%s': want the time at which the allocation ends in seconds "
                       "since 1970, as date +%%s prints it; 0: it has no end",
                       text);
    *end_s = (int64_t)seconds;
    return 0;
}
