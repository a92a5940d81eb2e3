/* SPDX-License-Identifier: Apache-2.0 */
/* Any environment, and any file that its variables name. The input is lines "NAME=value", an empty
 * line, then the file. A place that is found is consistent. */
#include "launcher/batch/batch_systems.h"
#include "launcher/batch/slurm.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    VALUE_MAX = 4096
};

struct input {
    const char *text;
    char value[32][VALUE_MAX]; /* in the order in which get() was called */
    unsigned next;
};

static const char *get(const void *context, const char *name)
{
    struct input *input = *(struct input *const *)context;
    size_t length = strlen(name);

    for (const char *line = input->text; line && *line && *line != '\n';) {
        const char *end = strchr(line, '\n');
        size_t whole = end ? (size_t)(end - line) : strlen(line);

        if (whole > length && whole - length <= VALUE_MAX &&
            strncmp(line, name, length) == 0 && line[length] == '=') {
            char *value = input->value[input->next++ % 32];

            memcpy(value, line + length + 1, whole - length - 1);
            value[whole - length - 1] = '\0';
            return value;
        }
        line = end ? end + 1 : NULL;
    }
    return NULL;
}

static char *read_file(const void *context, const char *path)
{
    const struct input *input = *(struct input *const *)context;
    const char *body = strstr(input->text, "\n\n");

    (void)path;
    return body ? ct_strdup(body + 2) : NULL;
}

static void check(const struct batch_place *place)
{
    int index = 0;

    for (size_t i = 0; place->has_size && i < place->nodes.count; i++)
        if (place->tasks[i] < 0)
            abort();
    if (place->nodes.count == 0 || !place->system || !*place->run_id)
        abort();
    if (place->has_size) {
        index = batch_task_index(place);
        if ((size_t)place->node_id >= place->nodes.count || index < 0 ||
            index >= batch_task_count(place))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct input space; /* 128 KiB: allocated once, not for each input */
    struct input *input = &space;
    char *text = ct_strndup((const char *)data, size);
    const struct batch_source source = {get, read_file, &input, "node1", 77};
    struct batch_place place;
    struct ctrun_error err;
    int64_t end_s;

    if (text) {
        input->text = text;
        input->next = 0;
        (void)slurm_grace(&source);
        (void)batch_end(&end_s, &source, &err);
        if (batch_find(&place, &source, &err) == 1) {
            check(&place);
            batch_place_deinit(&place);
        }
    }
    free(text);
    return 0;
}
