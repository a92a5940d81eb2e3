/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/tensor_file.h"

#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/durable.h"

int ct_tensor_file_check_metadata(const struct ctrun_metadata *metadata, size_t count,
                                  struct ctrun_error *err)
{
    if (!metadata && count)
        return ct_fail(err, -EINVAL, "metadata is NULL");
    for (size_t i = 0; i < count; i++) {
        const char *key = metadata[i].key;
        bool is_taken = false;

        if (!key || !metadata[i].value)
            return ct_fail(err, -EINVAL, "metadata[%zu]: its key or its value is NULL",
                           i);
        if (!ct_is_utf8(key) || !ct_is_utf8(metadata[i].value))
            return ct_fail(err, -EINVAL,
                           "metadata[%zu]: its key or its value is not UTF-8", i);
        if (strcmp(key, CT_TENSOR_FILE_CRC_KEY) == 0)
            return ct_fail(err, -EINVAL,
                           "metadata[%zu]: the key '%s' is reserved for the checksums",
                           i, key);
        for (size_t j = 0; j < i; j++)
            is_taken = is_taken || strcmp(key, metadata[j].key) == 0;
        if (is_taken)
            return ct_fail(err, -EINVAL,
                           "metadata[%zu]: the key '%.64s' is there already", i, key);
    }
    return 0;
}

size_t ct_tensor_bytes(const struct ctrun_tensor *tensor)
{
    size_t bytes = ctrun_dtype_size(tensor->dtype);

    for (int i = 0; i < tensor->dims; i++)
        bytes *= (size_t)tensor->sizes[i];
    return bytes;
}

/* Larger elements first, so that each tensor is aligned; else in the caller's order. Empty tensors
 * come first of all: otherwise the order would not follow from the offsets. */
static void tensors_order(const struct ctrun_tensor **out,
                          const struct ctrun_tensor *tensors, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (ct_tensor_bytes(&tensors[i]) == 0)
            out[n++] = &tensors[i];
    for (size_t size = 8; size > 0; size /= 2)
        for (size_t i = 0; i < count; i++)
            if (ctrun_dtype_size(tensors[i].dtype) == size &&
                ct_tensor_bytes(&tensors[i]) > 0)
                out[n++] = &tensors[i];
}

static char *crcs_format(const struct ctrun_tensor *const *tensors, size_t count)
{
    char *text = ct_zalloc_array(count + 1, CT_TENSOR_FILE_CRC_BYTES);

    for (size_t i = 0; text && i < count; i++)
        (void)ct_format(text + i * CT_TENSOR_FILE_CRC_BYTES,
                        CT_TENSOR_FILE_CRC_BYTES + 1, "%08x ",
                        ct_crc32c(0, tensors[i]->data, ct_tensor_bytes(tensors[i])));
    return text;
}

static int header_make(char **out, size_t *length,
                       const struct ctrun_tensor *const *order, size_t count,
                       const struct ctrun_metadata *metadata, size_t metadata_count,
                       struct ctrun_error *err)
{
    struct ctrun_metadata *all = ct_zalloc_array(metadata_count + 1, sizeof *all);
    char *crcs = crcs_format(order, count);
    int rc = -ENOMEM;

    if (all && crcs) {
        for (size_t i = 0; i < metadata_count; i++)
            all[i] = metadata[i];
        all[metadata_count] = (struct ctrun_metadata){.key = CT_TENSOR_FILE_CRC_KEY,
                                                      .value = crcs};
        rc = ct_safetensors_encode(out, length, order, count, all, metadata_count + 1);
    }
    free(crcs);
    free(all);
    if (rc == -E2BIG)
        return ct_fail(err, rc, "too many tensors: the header exceeds %d bytes",
                       CT_SAFETENSORS_HEADER_MAX_BYTES);
    return rc < 0 ? ct_fail(err, rc, "out of memory") : 0;
}

int ct_tensor_file_write(const char *path, const struct ctrun_tensor *tensors,
                         size_t count, const struct ctrun_metadata *metadata,
                         size_t metadata_count, uint64_t *bytes, uint32_t *header_crc,
                         struct ctrun_error *err)
{
    const struct ctrun_tensor **order = ct_zalloc_array(count, sizeof(*order));
    struct iovec *parts = ct_zalloc_array(count + 1, sizeof *parts);
    size_t header_bytes = 0;
    char *header = NULL;
    int rc;

    if (!order || !parts) {
        rc = ct_fail(err, -ENOMEM, "out of memory");
        goto done;
    }
    tensors_order(order, tensors, count);
    if ((rc = header_make(&header, &header_bytes, order, count, metadata,
                          metadata_count, err)) < 0)
        goto done;
    parts[0] = (struct iovec){header, header_bytes};
    *bytes = header_bytes;
    *header_crc = ct_crc32c(0, header, header_bytes);
    for (size_t i = 0; i < count; i++) {
        parts[i + 1] = (struct iovec){order[i]->data, ct_tensor_bytes(order[i])};
        *bytes += parts[i + 1].iov_len;
    }
    rc = ct_durable_write(path, parts, count + 1, err);
done:
    free(header);
    free(parts);
    free(order);
    return rc;
}
