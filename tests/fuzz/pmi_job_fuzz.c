/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any lines to the PMI-1 server, the first byte of each choosing the process; what it
 * answers is one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/pmi_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pmi_reply reply;
    struct pmi_job *job = pmi_job_create(3);
    char *text = strndup((const char *)data, size);

    for (char *at = text; job && at && *at;) {
        char *end = at + strcspn(at, "\n");
        const int rank = *at - '0';

        if (*end)
            *end++ = '\0';
        if (pmi_job_serve(job, rank, at + 1, &reply) == 0 && reply.act != PMI_WAIT &&
            reply.act != PMI_ABORT &&
            (reply.length == 0 || strlen(reply.text) != reply.length ||
             strchr(reply.text, '\n') != reply.text + reply.length - 1))
            abort();
        at = end;
    }
    free(text);
    pmi_job_destroy(job);
    return 0;
}
