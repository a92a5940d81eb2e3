/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/option_file.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/options/config_file.h"
#include "launcher/options/option_name.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/str_list.h"

enum {
    PATH_SHOWN = 300
};

/* ---- Reading ------------------------------------------------------------------------- */

int option_file_apply(struct options *options, const char *path, char *text,
                      size_t length, struct ctrun_error *err)
{
    struct config_file file;
    struct config_file_entry entry;
    int rc;

    config_file_init(&file, text, length);
    while ((rc = config_file_next(&file, &entry, err)) > 0)
        if ((rc = options_set_from_file(options, entry.name, entry.value, entry.line,
                                        err)) < 0)
            break;
    return rc < 0 ? (ct_wrap(err, "%.*s:%d", PATH_SHOWN, path, file.line), rc) : 0;
}

static int read_file(char **text, const char *path, size_t *length,
                     struct ctrun_error *err)
{
    struct stat info;
    const int rc = ct_whole_file_read(path, OPTION_FILE_MAX_BYTES, text, length, &info);

    switch (rc) {
    case 0: return 0;
    case -EBADMSG: return ct_fail(err, CTRUN_E_USAGE, "no regular file");
    case -EFBIG:
        return ct_fail(err, CTRUN_E_USAGE, "%lld bytes, more than %d",
                       (long long)info.st_size, OPTION_FILE_MAX_BYTES);
    case -ENOMEM: return ct_fail(err, rc, "out of memory");
    default: return ct_fail(err, CTRUN_E_USAGE, "%s", strerror(-rc));
    }
}

int option_file_load(struct options *options, struct ctrun_error *err)
{
    const struct option_value *config = &options->values[OPTION_CONFIG];
    size_t length;

    if (config->source == OPTION_TYPED && !*config->text)
        return ct_fail(err, CTRUN_E_USAGE, "--config: names no file");
    if (!option_has_text(options, OPTION_CONFIG))
        return 0;
    options_deinit(options);
    if (read_file(&options->file_text, config->text, &length, err) < 0)
        return ct_wrap(err, "--config %.*s", PATH_SHOWN, config->text), err->code;
    return option_file_apply(options, config->text, options->file_text, length, err);
}

/* ---- Errors from the file ------------------------------------------------------------ */

/* The place where `text` names the option: as --name, or without dashes if the name is no common
 * word. */
static const char *find_name(const char *text, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = text; *at; at++) {
        const bool is_dashed = at - text >= 2 && at[-1] == '-' && at[-2] == '-';
        size_t i = 0;

        while (i < length && (at[i] == name[i] || (at[i] == '_' && name[i] == '-')))
            i++;
        if (i < length || isalnum((unsigned char)at[i]) || at[i] == '-' || at[i] == '_')
            continue;
        if (is_dashed || ((at == text || !isalnum((unsigned char)at[-1])) &&
                          (strchr(name, '-') || strcmp(name, "nnodes") == 0)))
            return at;
    }
    return NULL;
}

void option_file_blame(const struct options *options, struct ctrun_error *err)
{
    const struct option_value *first = NULL;
    const char *first_at = NULL;

    /* The error is about the first option that its text names. */
    for (int id = 0; id < OPTION_COUNT; id++) {
        const char *at = find_name(err->text, option_table[id].name);

        if (at && (!first || at < first_at)) {
            first = &options->values[id];
            first_at = at;
        }
    }
    if (first && first->source == OPTION_FROM_FILE)
        ct_wrap(err, "%.*s:%d", PATH_SHOWN, option_text(options, OPTION_CONFIG),
                first->line);
}

/* ---- For other machines -------------------------------------------------------------- */

/* As it would be typed; NULL: out of memory. */
static char *spell(enum option_id id, const struct option_value *value)
{
    const bool has_value = option_table[id].value;
    const char *text = has_value ? value->text : "";
    const size_t size = OPTION_NAME_MAX_BYTES + strlen(text);
    char *word = ct_zalloc(size);

    if (word)
        (void)ct_format(word, size, "--%s%s%s", option_table[id].name,
                        has_value ? "=" : "", text);
    return word;
}

char **option_file_argv(const struct options *options, char *const *argv)
{
    size_t count = 0;
    size_t at = 1;
    bool is_short = false;
    char **list;

    while (argv[count])
        count++;
    if (!(list = ct_zalloc_array(count + OPTION_COUNT + 1, sizeof *list)))
        return NULL;
    is_short = !(list[0] = ct_strdup(argv[0]));
    for (int id = 0; id < OPTION_COUNT && !is_short; id++) {
        const struct option_value *value = &options->values[id];

        /* A flag that is off in the file needs no word. */
        if (value->source == OPTION_FROM_FILE &&
            (option_table[id].value || value->is_on))
            is_short = !(list[at++] = spell((enum option_id)id, value));
    }
    for (size_t i = 1; i < count && !is_short; i++)
        is_short = !(list[at++] = ct_strdup(argv[i]));
    if (!is_short)
        return list;
    ct_str_list_free(list);
    return NULL;
}
