/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/config_file.h"

#include "worker_sdk/base/str.h"

static const char blanks[] = " \t\r\v\f";
static const char name_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    "0123456789-_";

void config_file_init(struct config_file *file, char *text, size_t length)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t skipped = strncmp(text, mark, strlen(mark)) == 0 ? strlen(mark) : 0;

    *file = (struct config_file){text + skipped, text + length, 0};
}

static bool is_blank(char c)
{
    return c && strchr(blanks, c);
}

/* The next line, terminated; NULL at the end. */
static char *take_line(struct config_file *file, size_t *length)
{
    char *line = file->at;
    char *newline;

    if (line >= file->end)
        return NULL;
    newline = memchr(line, '\n', (size_t)(file->end - line));
    file->at = newline ? newline + 1 : file->end;
    *length = (size_t)((newline ? newline : file->end) - line);
    line[*length] = '\0';
    file->line++;
    return line;
}

/* After a value only a comment may follow. */
static int check_rest(const char *rest, struct ctrun_error *err)
{
    const char *word = rest + strspn(rest, blanks);

    if (!*word || (*word == '#' && word > rest))
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "'%.40s' after the value; quote a value that has blanks in it",
                   word);
}

/* Takes the quotes out in place. */
static int take_quoted(char *text, struct ctrun_error *err)
{
    const char quote = *text;
    char *to = text;
    const char *from = text + 1;

    for (; *from && *from != quote; from++) {
        if (quote == '"' && *from == '\\' && (from[1] == '"' || from[1] == '\\'))
            from++;
        *to++ = *from;
    }
    if (!*from)
        return ct_fail(err, CTRUN_E_USAGE, "no closing %c", quote);
    /* `to` is before `from`: the text after the quote is unchanged. */
    *to = '\0';
    return check_rest(from + 1, err);
}

static int take_plain(char *text, struct ctrun_error *err)
{
    const size_t length = strcspn(text, blanks);
    const int rc = check_rest(text + length, err);

    text[length] = '\0';
    return rc;
}

static int take_value(char *text, const char *name, struct ctrun_error *err)
{
    if (!*text || *text == '#')
        return ct_fail(err, CTRUN_E_USAGE,
                       "%s has no value; \"\" is an empty one, a flag is true or false",
                       name);
    return *text == '"' || *text == '\'' ? take_quoted(text, err)
                                         : take_plain(text, err);
}

static int take_entry(char *line, struct config_file_entry *out,
                      struct ctrun_error *err)
{
    const size_t length = strspn(line, name_letters);
    char *equals = line + length + strspn(line + length, blanks);
    char *value;

    if (length == 0 || *equals != '=')
        return ct_fail(err, CTRUN_E_USAGE, "'%.60s' is not NAME = VALUE", line);
    line[length] = '\0';
    for (value = equals + 1; is_blank(*value);)
        value++;
    out->name = line;
    out->value = value; /* quotes are taken out in place */
    return take_value(value, line, err);
}

int config_file_next(struct config_file *file, struct config_file_entry *out,
                     struct ctrun_error *err)
{
    size_t length;

    for (char *line; (line = take_line(file, &length));) {
        int rc;

        if (strlen(line) != length)
            return ct_fail(err, CTRUN_E_USAGE, "a NUL byte; this is not a text file");
        line += strspn(line, blanks);
        if (!*line || *line == '#')
            continue;
        out->line = file->line;
        rc = take_entry(line, out, err);
        return rc < 0 ? rc : 1;
    }
    return 0;
}
