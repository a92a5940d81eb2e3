/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/completion.h"

#include "launcher/options/option_name.h"
#include "worker_sdk/base/str.h"

static void print_spellings(FILE *out, const struct option *option,
                            const char *separator)
{
    char underscored[OPTION_NAME_MAX_BYTES];

    fprintf(out, "--%s", option->name);
    if (strchr(option->name, '-')) {
        option_name_spell(underscored, option->name, true);
        fprintf(out, "%s--%s", separator, underscored);
    }
    if (option->letter)
        fprintf(out, "%s-%c", separator, option->letter);
}

/* The placeholder says what a value is. */
static bool takes_file(const struct option *option)
{
    return option->value && (strcmp(option->value, "FILE") == 0 ||
                             strcmp(option->value, "PATH,...") == 0);
}

static bool takes_folder(const struct option *option)
{
    return option->value && strcmp(option->value, "DIR") == 0;
}

static void print_names(FILE *out)
{
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (option->is_launch_only)
            continue;
        fputs(id ? " " : "", out);
        print_spellings(out, option, " ");
    }
}

static void print_bash_case(FILE *out, const struct option *option, const char *words)
{
    fputs("    ", out);
    print_spellings(out, option, "|");
    fprintf(out, ")\n        COMPREPLY=($(compgen %s -- \"$word\")); return ;;\n",
            words);
}

static void print_bash(FILE *out)
{
    char words[256];

    /* Readline makes --name=value three words. */
    fputs("# bash completion for ctrun\n"
          "_ctrun() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} "
          "previous=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    if [ \"$word\" = = ]; then word=\n"
          "    elif [ \"$previous\" = = ] && [ \"$COMP_CWORD\" -ge 2 ]; then "
          "previous=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    fi\n"
          "    case $previous in\n",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (!option->choices)
            continue;
        (void)ct_format(words, sizeof words, "-W '%s'", option->choices);
        print_bash_case(out, option, words);
    }
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (takes_folder(option) || takes_file(option))
            print_bash_case(out, option, takes_folder(option) ? "-d" : "-f");
    }
    fputs("    esac\n"
          "    case $word in\n"
          "    -*) COMPREPLY=($(compgen -W '",
          out);
    print_names(out);
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
            fputs(takes_folder(option) ? ":_files -/"
                  : takes_file(option) ? ":_files"
                                       : ": ",
                  out);
    }
    fputs("' \\\n", out);
}

static void print_zsh(FILE *out)
{
    char spelling[OPTION_NAME_MAX_BYTES + 2];

    fputs("#compdef ctrun\n"
          "_ctrun() {\n"
          "    _arguments -S -A '-*' \\\n",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (option->is_launch_only)
            continue;
        (void)ct_format(spelling, sizeof spelling, "--%s", option->name);
        print_zsh_option(out, option, spelling);
        if (strchr(option->name, '-')) {
            option_name_spell(spelling + 2, option->name, true);
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
    char underscored[OPTION_NAME_MAX_BYTES];

    fputs("# tcsh completion for ctrun\n"
          "complete ctrun 'c/--/(",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (option_table[id].is_launch_only)
            continue;
        fprintf(out, "%s%s", id ? " " : "", option_table[id].name);
        if (strchr(option_table[id].name, '-')) {
            option_name_spell(underscored, option_table[id].name, true);
            fprintf(out, " %s", underscored);
        }
    }
    fputs(")/'", out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (!option->choices)
            continue;
        option_name_spell(underscored, option->name, true);
        fprintf(out, " 'n/--%s/(%s)/' 'n/--%s/(%s)/'", option->name, option->choices,
                underscored, option->choices);
    }
    fputs(" 'p/*/f/'\n", out);
}

/* A description in single quotes, as fish reads them. */
static void print_fish_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (strchr("'\\", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

static void print_fish_option(FILE *out, const struct option *option, const char *name)
{
    fprintf(out, "complete -c ctrun -n __ctrun_options -l %s", name);
    if (option->letter)
        fprintf(out, " -s %c", option->letter);
    if (option->choices)
        fprintf(out, " -x -a '%s'", option->choices);
    else if (takes_folder(option))
        fputs(" -x -a '(__fish_complete_directories)'", out);
    else if (option->value)
        fputs(takes_file(option) ? " -r -F" : " -x", out);
    fputs(" -d ", out);
    print_fish_text(out, option->help);
    fputc('\n', out);
}

/* Options end at the program: the first word that is neither an option nor an option's value. */
static void print_fish_condition(FILE *out)
{
    fputs("# fish completion for ctrun\n"
          "function __ctrun_options\n"
          "    set -l takes",
          out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        if (!option_table[id].value || option_table[id].is_launch_only)
            continue;
        fputc(' ', out);
        print_spellings(out, &option_table[id], " ");
    }
    fputs("\n"
          "    set -l is_value 0\n"
          "    for word in (commandline -opc)[2..-1]\n"
          "        if test $is_value = 1\n"
          "            set is_value 0\n"
          "        else if not string match -q -- '-*' $word\n"
          "            return 1\n"
          "        else if contains -- $word $takes\n"
          "            set is_value 1\n"
          "        end\n"
          "    end\n"
          "end\n",
          out);
}

static void print_fish(FILE *out)
{
    char underscored[OPTION_NAME_MAX_BYTES];

    print_fish_condition(out);
    for (int id = 0; id < OPTION_COUNT; id++) {
        const struct option *option = &option_table[id];

        if (option->is_launch_only)
            continue;
        print_fish_option(out, option, option->name);
        if (strchr(option->name, '-')) {
            option_name_spell(underscored, option->name, true);
            print_fish_option(out, option, underscored);
        }
    }
}

void completion_print(FILE *out, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        print_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        print_zsh(out);
    else if (strcmp(shell, "fish") == 0)
        print_fish(out);
    else
        print_tcsh(out);
}
