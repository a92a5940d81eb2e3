/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/nnodes.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

static int parse_part(const char *whole, const char *part, size_t length, int *out,
                      struct ctrun_error *err)
{
    char copy[32];
    int64_t value;

    if (ct_format(copy, sizeof copy, "%.*s", (int)length, part) < 0 ||
        ct_parse_python_int(copy, &value) < 0)
        return ct_fail(err, -EINVAL, "--nnodes=%s: '%.*s' is not a number", whole,
                       (int)length, part);
    if (value > NNODES_MAX)
        return ct_fail(err, -EINVAL, "--nnodes=%s: more than %d nodes", whole,
                       NNODES_MAX);
    *out = value < -1 ? -1 : (int)value;
    return 0;
}

int nnodes_parse(const char *text, struct nnodes *out, struct ctrun_error *err)
{
    const char *colon = strchr(text, ':');
    int rc;

    if (colon && strchr(colon + 1, ':'))
        return ct_fail(err, -EINVAL, "nnodes=%s is not in \"MIN:MAX\" format", text);
    rc = parse_part(text, text, colon ? (size_t)(colon - text) : strlen(text),
                    &out->min, err);
    out->max = out->min;
    if (rc == 0 && colon)
        rc = parse_part(text, colon + 1, strlen(colon + 1), &out->max, err);
    if (rc == 0 && (out->min < 1 || out->min > out->max))
        return ct_fail(
            err, -EINVAL,
            "--nnodes=%s: min_nodes must be > 0 and <= max_nodes, got min_nodes=%d, "
            "max_nodes=%d",
            text, out->min, out->max);
    return rc;
}

int nproc_parse(const char *text, const struct nproc_source *source, int *out,
                struct ctrun_error *err)
{
    int64_t value;
    int count;

    if (ct_parse_python_int(text, &value) == 0) {
        if (value < 1 || value > NPROC_MAX)
            return ct_fail(err, -EINVAL, "--nproc-per-node=%s: must be 1 to %d", text,
                           NPROC_MAX);
        *out = (int)value;
        return 0;
    }
    if (strcmp(text, "cpu") == 0) {
        count = source->cpus(source->context);
    } else if (strcmp(text, "gpu") == 0) {
        if ((count = source->gpus(source->context)) == 0)
            return ct_fail(err, CTRUN_E_RESOURCES,
                           "--nproc-per-node=gpu: Cuda is not available.");
    } else if (strcmp(text, "auto") == 0) {
        if ((count = source->gpus(source->context)) == 0)
            count = source->cpus(source->context);
    } else if (strcmp(text, "xpu") == 0) {
        return ct_fail(err, -EINVAL, "--nproc-per-node=xpu: Xpu is not available.");
    } else {
        return ct_fail(
            err, -EINVAL,
            "Unsupported nproc_per_node value: %s; use a number, auto, cpu, gpu or a "
            "list such as 8,8,2x3",
            text);
    }
    *out = count > NPROC_MAX ? NPROC_MAX : count;
    return 0;
}
