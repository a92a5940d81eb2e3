/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as a file of options. Each value, written in quotes, parses to the same
 * value; applying the options does not crash. */
#include "launcher/options/config_file.h"
#include "launcher/options/option_file.h"
#include "worker_sdk/base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_quoted(const struct config_file_entry *entry)
{
    const size_t length = strlen(entry->value);
    char *text = malloc(2 * length + 8);
    struct config_file file;
    struct config_file_entry again;
    size_t n = 0;

    if (!text)
        return;
    text[n++] = 'x';
    text[n++] = '=';
    text[n++] = '"';
    for (size_t i = 0; i < length; i++) {
        if (entry->value[i] == '"' || entry->value[i] == '\\')
            text[n++] = '\\';
        text[n++] = entry->value[i];
    }
    text[n++] = '"';
    text[n] = '\0';
    config_file_init(&file, text, n);
    if (config_file_next(&file, &again, NULL) != 1 ||
        strcmp(again.value, entry->value) != 0)
        abort();
    free(text);
}

static void read_entries(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 1);
    struct config_file file;
    struct config_file_entry entry;

    if (!text)
        return;
    memcpy(text, data, size);
    config_file_init(&file, text, size);
    while (config_file_next(&file, &entry, NULL) > 0)
        check_quoted(&entry);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char own[] = "ctrun";
    char program[] = "x";
    char *argv[] = {own, program, NULL};
    char *env[] = {NULL};
    char *text = calloc(1, size + 1);
    struct options options;
    struct ctrun_error err = {0};

    if (size)
        read_entries(data, size);
    if (text && options_parse(&options, 2, argv, env, NULL) == 0) {
        if (size)
            memcpy(text, data, size);
        if (option_file_apply(&options, "f", text, size, &err) < 0)
            option_file_blame(&options, &err);
    }
    free(text);
    return 0;
}
