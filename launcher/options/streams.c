/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/streams.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

static int parse_map(const char *option, const char *text, uint8_t *bits,
                     struct ctrun_error *err)
{
    const char *rest = text;
    size_t length;

    if (text[0] >= '0' && text[0] <= '3' && !text[1]) {
        memset(bits, text[0] - '0', NPROC_MAX);
        return 0;
    }
    memset(bits, 0, NPROC_MAX);
    for (const char *item; (item = ct_next_field(&rest, ',', &length));) {
        size_t digits = strspn(item, "0123456789");
        unsigned long rank;

        if (digits == 0 || digits > 5 || digits + 2 != length || item[digits] != ':' ||
            item[digits + 1] < '0' || item[digits + 1] > '3')
            return ct_fail(
                err, -EINVAL,
                "%s=%s: must be one digit (^[0123]$) or local ranks with one each "
                "(^(\\d+:[0123],)*(\\d+:[0123])$): 1 stdout, 2 stderr, 3 both",
                option, text);
        rank = strtoul(item, NULL, 10);
        if (rank < NPROC_MAX) /* a rank that this node does not have is ignored */
            bits[rank] = (uint8_t)(item[digits + 1] - '0');
    }
    return 0;
}

static int parse_filter(const char *text, bool *is_shown, struct ctrun_error *err)
{
    const char *rest = text;
    size_t length;

    memset(is_shown, !*text, NPROC_MAX * sizeof *is_shown);
    if (!*text)
        return 0;
    for (const char *item; (item = ct_next_field(&rest, ',', &length));) {
        char number[24];
        int64_t rank;

        if (ct_format(number, sizeof number, "%.*s", (int)length, item) < 0 ||
            ct_parse_python_int(number, &rank) < 0)
            return ct_fail(
                err, -EINVAL,
                "--local_ranks_filter must be a comma-separated list of integers "
                "e.g. --local_ranks_filter=0,1,2");
        if (rank >= 0 && rank < NPROC_MAX)
            is_shown[rank] = true;
    }
    return 0;
}

int streams_parse(struct streams *out, const char *redirects, const char *tees,
                  const char *filter, struct ctrun_error *err)
{
    int rc = parse_map("--redirects", redirects, out->redirects, err);

    if (rc == 0)
        rc = parse_map("--tee", tees, out->tees, err);
    if (rc == 0)
        rc = parse_filter(filter, out->is_shown, err);
    return rc;
}

enum agent_stream streams_target(const struct streams *streams, int local_rank,
                                 int stream)
{
    bool is_shown = streams->is_shown[local_rank];

    if (streams->tees[local_rank] & stream)
        return is_shown ? AGENT_STREAM_TEE : AGENT_STREAM_FILE_ONLY_OF_TEE;
    if (streams->redirects[local_rank] & stream)
        return AGENT_STREAM_FILE;
    return is_shown ? AGENT_STREAM_CONSOLE : AGENT_STREAM_DROP;
}

bool streams_has_file(enum agent_stream stream)
{
    return stream == AGENT_STREAM_FILE || stream == AGENT_STREAM_TEE ||
           stream == AGENT_STREAM_FILE_ONLY_OF_TEE;
}
