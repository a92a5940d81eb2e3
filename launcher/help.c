/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/help.h"

#include "launcher/option.h"
#include "worker_sdk/base/str.h"

enum {
    HELP_COLUMN = 30,
    HELP_WIDTH = 92,
    NAME_MAX_BYTES = 64
};

static void spell_underscored(char *dst, const char *name)
{
    (void)ct_copy(dst, NAME_MAX_BYTES, name);
    for (; *dst; dst++)
        if (*dst == '-')
            *dst = '_';
}

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
        left, sizeof left, "  %s%.1s%s--%s%s%s", option->letter ? "-" : "    ",
        option->letter ? &option->letter : "", option->letter ? ", " : "", option->name,
        option->value ? " " : "", option->value ? option->value : "");
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

/* ---- Completion ---------------------------------------------------------------------- */

static void print_names(FILE *out, const char *separator)
{
    char underscored[NAME_MAX_BYTES];

    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (option->is_launch_only)
            continue;
        fprintf(out, "%s--%s", id ? separator : "", option->name);
        if (strchr(option->name, '-')) {
            spell_underscored(underscored, option->name);
            fprintf(out, "%s--%s", separator, underscored);
        }
        if (option->letter)
            fprintf(out, "%s-%c", separator, option->letter);
    }
}

static void print_bash(FILE *out)
{
    char underscored[NAME_MAX_BYTES];

    fputs("# bash completion for ctrun\n"
          "_ctrun() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} "
          "previous=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    case $previous in\n",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (!option->choices)
            continue;
        spell_underscored(underscored, option->name);
        fprintf(out,
                "    --%s|--%s)\n"
                "        COMPREPLY=($(compgen -W '%s' -- \"$word\")); return ;;\n",
                option->name, underscored, option->choices);
    }
    fputs("    esac\n"
          "    case $word in\n"
          "    -*) COMPREPLY=($(compgen -W '",
          out);
    print_names(out, " ");
    fputs("' -- \"$word\")) ;;\n"
          "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
          "    esac\n"
          "}\n"
          "complete -o filenames -F _ctrun ctrun\n",
          out);
}

/* In an _arguments specification brackets and colons must be escaped, quotes doubled. */
static void print_zsh_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            fputc('\\', out);
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, '\0'}, out);
    }
}

static void print_zsh_option(FILE *out, const struct option *option,
                             const char *spelling)
{
    fprintf(out, "        '%s%s[", spelling,
            option->value ? (spelling[1] == '-' ? "=" : "+") : "");
    print_zsh_text(out, option->help);
    fputs("]", out);
    if (option->value) {
        fputs(":", out);
        print_zsh_text(out, option->value);
        if (option->choices)
            fprintf(out, ":(%s)", option->choices);
        else
            fputs(": ", out);
    }
    fputs("' \\\n", out);
}

static void print_zsh(FILE *out)
{
    char spelling[NAME_MAX_BYTES + 2];

    fputs("#compdef ctrun\n"
          "_ctrun() {\n"
          "    _arguments -S \\\n",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (option->is_launch_only)
            continue;
        (void)ct_format(spelling, sizeof spelling, "--%s", option->name);
        print_zsh_option(out, option, spelling);
        if (strchr(option->name, '-')) {
            spell_underscored(spelling + 2, option->name);
            print_zsh_option(out, option, spelling);
        }
        if (option->letter) {
            (void)ct_format(spelling, sizeof spelling, "-%c", option->letter);
            print_zsh_option(out, option, spelling);
        }
    }
    fputs("        '1:program:_files' '*::arguments:_files'\n"
          "}\n"
          "if [ \"$funcstack[1]\" = _ctrun ]; then _ctrun \"$@\"; else compdef _ctrun "
          "ctrun; fi\n",
          out);
}

static void print_tcsh(FILE *out)
{
    char underscored[NAME_MAX_BYTES];

    fputs("# tcsh completion for ctrun\n"
          "complete ctrun 'c/--/(",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (option_table[id].is_launch_only)
            continue;
        fprintf(out, "%s%s", id ? " " : "", option_table[id].name);
        if (strchr(option_table[id].name, '-')) {
            spell_underscored(underscored, option_table[id].name);
            fprintf(out, " %s", underscored);
        }
    }
    fputs(")/'", out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (!option->choices)
            continue;
        spell_underscored(underscored, option->name);
        fprintf(out, " 'n/--%s/(%s)/' 'n/--%s/(%s)/'", option->name, option->choices,
                underscored, option->choices);
    }
    fputs(" 'p/*/f/'\n", out);
}

void help_print_completion(FILE *out, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(out);
    else
        print_tcsh(out);
}
