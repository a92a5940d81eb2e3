/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/safetensors.h"

#include <errno.h>

#include <cjson/cJSON.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

static const char metadata_key[] = "__metadata__";
static const double json_exact_max = 9007199254740992.0; /* 2^53: cJSON keeps doubles */

/* Every type of the format: a file may also have tensors that we cannot load. */
static const struct {
    const char *name;
    uint64_t size;
} dtypes[] = {
    {"U8", 1},  {"I32", 4},  {"I64", 8}, {"F16", 2},     {"BF16", 2},    {"F32", 4},
    {"F64", 8}, {"BOOL", 1}, {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
    {"I16", 2}, {"U16", 2},  {"U32", 4}, {"U64", 8},     {"C64", 8},
};

const char *ct_safetensors_dtype_name(enum ctrun_dtype dtype)
{
    switch (dtype) {
    case CTRUN_U8: return "U8";
    case CTRUN_I32: return "I32";
    case CTRUN_I64: return "I64";
    case CTRUN_F16: return "F16";
    case CTRUN_BF16: return "BF16";
    case CTRUN_F32: return "F32";
    case CTRUN_F64: return "F64";
    case CTRUN_I8: return "I8";
    }
    return NULL;
}

const char *ct_safetensors_dtype_of(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].name;
    return NULL;
}

uint64_t ct_safetensors_dtype_size(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].size;
    return 0;
}

void ct_safetensors_format_shape(char dst[CT_SAFETENSORS_SHAPE_TEXT_MAX],
                                 const char *dtype, int dims, const int64_t *sizes)
{
    size_t size = CT_SAFETENSORS_SHAPE_TEXT_MAX;
    int used = ct_format(dst, size, "%.16s (", dtype);

    for (int i = 0; i < dims && used >= 0; i++) {
        int more = ct_format(dst + used, size - (size_t)used, i ? ", %lld" : "%lld",
                             (long long)sizes[i]);

        used = more < 0 ? more : used + more;
    }
    if (used >= 0)
        (void)ct_format(dst + used, size - (size_t)used, ")");
}

/* ---- Decoding ---- */

static int bad(struct ctrun_error *err, const char *name, const char *why)
{
    return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "header: tensor '%.128s': %s", name,
                   why);
}

bool ct_json_read_number(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > json_exact_max)
        return false;
    *out = (uint64_t)item->valuedouble;
    return (double)*out == item->valuedouble;
}

/* Reads the shape and multiplies *bytes by it. */
static int read_shape(struct ct_safetensors_entry *entry, const cJSON *shape,
                      uint64_t *bytes, struct ctrun_error *err)
{
    const cJSON *item;

    if (!cJSON_IsArray(shape))
        return bad(err, entry->name, "shape is missing or not a list");
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t size;

        if (entry->dims == CTRUN_MAX_DIMS)
            return bad(err, entry->name, "more than 8 dimensions");
        if (!ct_json_read_number(item, &size))
            return bad(err, entry->name, "a size is not a whole number");
        if (__builtin_mul_overflow(*bytes, size, bytes))
            return bad(err, entry->name, "its shape is too large");
        entry->sizes[entry->dims++] = (int64_t)size;
    }
    return 0;
}

/* The header is not trusted: offsets, shape and type must agree with each other and with the
 * file's length. */
static int read_entry(struct ct_safetensors_entry *entry, const cJSON *item,
                      uint64_t data_bytes, struct ctrun_error *err)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    uint64_t bytes;
    int rc;

    /* borrowed from the tree, as dtype is; ct_safetensors_deinit() frees both together */
    entry->name = item->string;
    if (!cJSON_IsObject(item))
        return bad(err, entry->name, "not an object");
    if (!cJSON_IsString(dtype) ||
        (bytes = ct_safetensors_dtype_size(dtype->valuestring)) == 0)
        return bad(err, entry->name, "its dtype is missing or unknown");
    entry->dtype = dtype->valuestring;
    if ((rc = read_shape(entry, cJSON_GetObjectItemCaseSensitive(item, "shape"), &bytes,
                         err)) < 0)
        return rc;
    if (cJSON_GetArraySize(offsets) != 2 ||
        !ct_json_read_number(cJSON_GetArrayItem(offsets, 0), &entry->begin) ||
        !ct_json_read_number(cJSON_GetArrayItem(offsets, 1), &entry->end) ||
        entry->begin > entry->end)
        return bad(err, entry->name, "data_offsets are not [begin, end]");
    if (entry->end > data_bytes)
        return ct_fail(
            err, CTRUN_E_BAD_CHECKPOINT,
            "cut off: tensor '%.128s' ends at byte %llu of the data, the file "
            "has %llu",
            entry->name, (unsigned long long)entry->end,
            (unsigned long long)data_bytes);
    if (entry->end - entry->begin != bytes)
        return bad(err, entry->name, "its length does not fit its shape");
    return 0;
}

static int read_metadata(const cJSON *metadata, struct ctrun_error *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(metadata))
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "header: %s is not an object",
                       metadata_key);
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item))
            return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                           "header: %s: '%.128s' is not text", metadata_key,
                           item->string);
    }
    return 0;
}

static int compare_place(const void *a, const void *b)
{
    const struct ct_safetensors_entry *x = a;
    const struct ct_safetensors_entry *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int compare_name(const void *a, const void *b)
{
    const struct ct_safetensors_entry *x = a;
    const struct ct_safetensors_entry *y = b;

    return strcmp(x->name, y->name);
}

/* The tensors cover the data from the first byte to the last, each byte once. */
static int check_cover(struct ct_safetensors *header, uint64_t data_bytes,
                       struct ctrun_error *err)
{
    uint64_t next = 0;

    qsort(header->entries, header->count, sizeof *header->entries, compare_place);
    for (size_t i = 0; i < header->count; i++) {
        struct ct_safetensors_entry *entry = &header->entries[i];

        if (entry->begin != next)
            return bad(err, entry->name,
                       entry->begin < next ? "it overlaps another one"
                                           : "unused bytes in front of it");
        entry->ordinal = i;
        next = entry->end;
    }
    if (next != data_bytes)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%llu bytes of data behind the last tensor",
                       (unsigned long long)(data_bytes - next));
    return 0;
}

static int check_names(struct ct_safetensors *header, struct ctrun_error *err)
{
    /* last: ct_safetensors_find() needs this order. `ordinal` keeps that of the bytes, which the
     * sums are in. */
    qsort(header->entries, header->count, sizeof *header->entries, compare_name);
    for (size_t i = 1; i < header->count; i++)
        if (compare_name(&header->entries[i - 1], &header->entries[i]) == 0)
            return bad(err, header->entries[i].name, "it is there twice");
    return 0;
}

static int read_tree(struct ct_safetensors *out, uint64_t data_bytes,
                     struct ctrun_error *err)
{
    size_t items = (size_t)cJSON_GetArraySize(out->tree);
    bool has_metadata = false;
    const cJSON *item;
    int rc;

    if (!(out->entries = ct_zalloc_array(items, sizeof *out->entries)))
        return ct_fail(err, -ENOMEM, "header: out of memory for %zu tensors", items);
    cJSON_ArrayForEach(item, out->tree)
    {
        if (strcmp(item->string, metadata_key) == 0) {
            if (has_metadata)
                return bad(err, metadata_key, "it is there twice");
            has_metadata = true;
            rc = read_metadata(item, err);
        } else {
            rc = read_entry(&out->entries[out->count++], item, data_bytes, err);
        }
        if (rc < 0)
            return rc;
    }
    if ((rc = check_cover(out, data_bytes, err)) < 0)
        return rc;
    return check_names(out, err);
}

int ct_safetensors_decode(struct ct_safetensors *out, const char *json, size_t length,
                          uint64_t data_bytes, struct ctrun_error *err)
{
    const char *end = NULL;
    int rc;

    *out = (struct ct_safetensors){.count = 0};
    out->tree = cJSON_ParseWithLengthOpts(json, length, &end, false);
    if (!out->tree)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "header: no JSON from byte %zu on",
                       (size_t)(end ? end - json : 0) + CT_SAFETENSORS_PREFIX_BYTES);
    /* the format pads its header with blanks, so that data begin at a multiple of 8 */
    while (end < json + length && *end == ' ')
        end++;
    if (!cJSON_IsObject(out->tree) || end != json + length)
        rc = ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "header: not one JSON object");
    else
        rc = read_tree(out, data_bytes, err);
    if (rc < 0)
        ct_safetensors_deinit(out);
    return rc;
}

void ct_safetensors_deinit(struct ct_safetensors *header)
{
    free(header->entries);
    cJSON_Delete(header->tree);
    *header = (struct ct_safetensors){.count = 0};
}

const struct ct_safetensors_entry *
ct_safetensors_find(const struct ct_safetensors *header, const char *name)
{
    const struct ct_safetensors_entry key = {.name = name};

    return bsearch(&key, header->entries, header->count, sizeof key, compare_name);
}

const char *ct_safetensors_metadata(const struct ct_safetensors *header,
                                    const char *key)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(header->tree, metadata_key);

    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(all, key));
}

/* ---- Encoding ---- */

static bool add_number(cJSON *array, uint64_t value)
{
    cJSON *item = cJSON_CreateNumber((double)value);

    if (cJSON_AddItemToArray(array, item))
        return true;
    cJSON_Delete(item);
    return false;
}

/* Adds one tensor at *offset and moves *offset to its end. */
static bool add_tensor(cJSON *tree, const struct ctrun_tensor *tensor, uint64_t *offset)
{
    cJSON *object = cJSON_AddObjectToObject(tree, tensor->name);
    const char *dtype = ct_safetensors_dtype_name(tensor->dtype);
    uint64_t bytes = ctrun_dtype_size(tensor->dtype);
    cJSON *shape;
    cJSON *offsets;

    if (!cJSON_AddStringToObject(object, "dtype", dtype) ||
        !(shape = cJSON_AddArrayToObject(object, "shape")))
        return false;
    for (int i = 0; i < tensor->dims; i++) {
        bytes *= (uint64_t)tensor->sizes[i];
        if (!add_number(shape, (uint64_t)tensor->sizes[i]))
            return false;
    }
    offsets = cJSON_AddArrayToObject(object, "data_offsets");
    if (!offsets || !add_number(offsets, *offset) ||
        !add_number(offsets, *offset + bytes))
        return false;
    *offset += bytes;
    return true;
}

static cJSON *make_tree(const struct ctrun_tensor *const *tensors, size_t count,
                        const struct ctrun_metadata *metadata, size_t metadata_count)
{
    cJSON *tree = cJSON_CreateObject();
    uint64_t offset = 0;

    if (metadata_count > 0) {
        cJSON *map = cJSON_AddObjectToObject(tree, metadata_key);

        for (size_t i = 0; i < metadata_count; i++)
            if (!cJSON_AddStringToObject(map, metadata[i].key, metadata[i].value))
                goto fail;
    }
    for (size_t i = 0; i < count; i++)
        if (!add_tensor(tree, tensors[i], &offset))
            goto fail;
    return tree;
fail:
    cJSON_Delete(tree);
    return NULL;
}

int ct_safetensors_encode(char **out, size_t *length,
                          const struct ctrun_tensor *const *tensors, size_t count,
                          const struct ctrun_metadata *metadata, size_t metadata_count)
{
    cJSON *tree = make_tree(tensors, count, metadata, metadata_count);
    char *json = tree ? cJSON_PrintUnformatted(tree) : NULL;
    size_t bytes = json ? strlen(json) : 0;
    size_t whole = (CT_SAFETENSORS_PREFIX_BYTES + bytes + CT_SAFETENSORS_ALIGN - 1) /
                   CT_SAFETENSORS_ALIGN * CT_SAFETENSORS_ALIGN;
    struct ct_writer writer;
    int rc = -ENOMEM;

    cJSON_Delete(tree);
    *out = NULL;
    *length = whole;
    if (bytes > CT_SAFETENSORS_HEADER_MAX_BYTES - CT_SAFETENSORS_ALIGN)
        rc = -E2BIG;
    else if (json && (*out = ct_zalloc(whole))) {
        memset(*out, ' ', whole);
        ct_writer_init(&writer, *out, whole);
        ct_write_u64(&writer, whole - CT_SAFETENSORS_PREFIX_BYTES);
        ct_write_raw(&writer, json, bytes);
        rc = 0;
    }
    cJSON_free(json);
    return rc;
}
