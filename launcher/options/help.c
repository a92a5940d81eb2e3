/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/help.h"

#include "launcher/options/option_table.h"
#include "worker_sdk/base/str.h"

enum {
    HELP_COLUMN = 30,
    HELP_WIDTH = 92
};

/* Breaks text between words; the first line begins at HELP_COLUMN, as the others do. */
static void print_wrapped(FILE *out, const char *text)
{
    int column = HELP_COLUMN;
    const char *rest = text;
    size_t length;

    for (const char *word; (word = ct_next_field(&rest, ' ', &length));) {
        bool first = column == HELP_COLUMN;

        if (!first && column + 1 + (int)length > HELP_WIDTH) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)length, word);
        column += (int)length + !first;
    }
}

static void print_option(FILE *out, const struct option *option)
{
    char left[96];
    char right[512];
    const char *fallback = option->fallback && *option->fallback ? option->fallback
                                                                 : NULL;

    (void)ct_format(
        left, sizeof left, "  %s%.1s%s--%s%s%s%s", option->letter ? "-" : "    ",
        option->letter ? &option->letter : "", option->letter ? ", " : "", option->name,
        option->alone   ? "["
        : option->value ? " "
                        : "",
        option->value ? option->value : "", option->alone ? "]" : "");
    (void)ct_format(right, sizeof right, "%s%s%s%s%s%s%s%s", option->help,
                    option->choices ? "; one of: " : "",
                    option->choices ? option->choices : "",
                    option->env || fallback ? " [" : "", option->env ? option->env : "",
                    option->env && fallback ? "; " : "", fallback ? fallback : "",
                    option->env || fallback ? "]" : "");
    fputs(left, out);
    if (strlen(left) + 2 > HELP_COLUMN)
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    else
        fprintf(out, "%*s", HELP_COLUMN - (int)strlen(left), "");
    print_wrapped(out, right);
    fputc('\n', out);
}

void help_print(FILE *out)
{
    fputs(HELP_USAGE
          "\n\n"
          "Starts PROGRAM once per worker on this node, together with the other nodes "
          "of the job.\n"
          "A Python script runs under Python, a native program runs directly. Names "
          "may be written\n"
          "with _ instead of -, and shortened. In brackets: environment name; "
          "default.\n",
          out);
    for (int group = 0; group < OPTION_GROUP_COUNT; group++) {
        fprintf(out, "\n%s\n", option_group_titles[group]);
        for (int id = 0; id < OPTION_COUNT; id++)
            if ((int)option_table[id].group == group)
                print_option(out, &option_table[id]);
    }
    fputs("\nSee ctrun(1); differences from torchrun: ctrun-torchrun(7).\n", out);
}
