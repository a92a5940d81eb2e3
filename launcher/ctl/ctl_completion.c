/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl --print-completion SHELL: scripts from the tables of the verbs. */
#include "launcher/ctl/ctl.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const char *choices_of(const struct ctl_verb *verb)
{
    return verb->choices ? verb->choices : "";
}

static void print_options(FILE *out, const struct ctl_verb *verb)
{
    for (const struct ctl_option *option = verb->options; option->name; option++)
        fprintf(out, "--%s ", option->name);
    fputs("--help", out);
}

static void print_verbs(FILE *out, const struct ctl_verb *const *verbs)
{
    for (; *verbs; verbs++)
        fprintf(out, "%s%s", (*verbs)->name, verbs[1] ? " " : "");
}

static void print_bash(FILE *out, const struct ctl_verb *const *verbs)
{
    fputs("# bash completion for ctrunctl\n"
          "_ctrunctl() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]}\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W '",
          out);
    print_verbs(out, verbs);
    fputs(" --help --version' -- \"$word\")); return\n"
          "    fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          out);
    for (; *verbs; verbs++) {
        fprintf(out, "    %s) COMPREPLY=($(compgen -W '", (*verbs)->name);
        print_options(out, *verbs);
        if (*choices_of(*verbs))
            fprintf(out, " %s", choices_of(*verbs));
        fputs("' -- \"$word\")) ;;\n", out);
    }
    fputs("    esac\n}\ncomplete -F _ctrunctl ctrunctl\n", out);
}

/* Prints the first line of `text` inside single quotes; each ' in it becomes `quote`. */
static void print_first_line(FILE *out, const char *text, const char *quote)
{
    for (; *text && *text != '\n'; text++)
        if (*text == '\'')
            fputs(quote, out);
        else
            fputc(*text, out);
}

static void print_zsh(FILE *out, const struct ctl_verb *const *verbs)
{
    fputs("#compdef ctrunctl\n"
          "_ctrunctl() {\n"
          "    local -a verbs\n"
          "    verbs=(",
          out);
    for (const struct ctl_verb *const *verb = verbs; *verb; verb++) {
        fprintf(out, "\n        '%s:", (*verb)->name);
        print_first_line(out, (*verb)->help, "'\\''");
        fputc('\'', out);
    }
    fputs(")\n"
          "    if (( CURRENT == 2 )); then _describe verb verbs; return; fi\n"
          "    case $words[2] in\n",
          out);
    for (; *verbs; verbs++) {
        fprintf(out, "    %s) compadd -- ", (*verbs)->name);
        print_options(out, *verbs);
        fprintf(out, " %s ;;\n", choices_of(*verbs));
    }
    fputs("    esac\n}\n"
          "if [ \"$funcstack[1]\" = _ctrunctl ]; then _ctrunctl \"$@\"; else compdef "
          "_ctrunctl ctrunctl; fi\n",
          out);
}

static void print_fish(FILE *out, const struct ctl_verb *const *verbs)
{
    fputs("# fish completion for ctrunctl\ncomplete -c ctrunctl -f\n", out);
    for (; *verbs; verbs++) {
        fprintf(out, "complete -c ctrunctl -n __fish_use_subcommand -a %s -d '",
                (*verbs)->name);
        print_first_line(out, (*verbs)->help, "\\'");
        fputs("'\n", out);
        for (const struct ctl_option *option = (*verbs)->options; option->name;
             option++) {
            fprintf(out,
                    "complete -c ctrunctl -n '__fish_seen_subcommand_from %s' -l %s%s "
                    "-d '",
                    (*verbs)->name, option->name, option->value ? " -x" : "");
            print_first_line(out, option->help, "\\'");
            fputs("'\n", out);
        }
        if (*choices_of(*verbs))
            fprintf(
                out,
                "complete -c ctrunctl -n '__fish_seen_subcommand_from %s' -a '%s'\n",
                (*verbs)->name, choices_of(*verbs));
    }
}

int ctl_completion_print(const struct ctl_verb *const *verbs, const char *shell)
{
    if (shell && strcmp(shell, "bash") == 0)
        print_bash(stdout, verbs);
    else if (shell && strcmp(shell, "zsh") == 0)
        print_zsh(stdout, verbs);
    else if (shell && strcmp(shell, "fish") == 0)
        print_fish(stdout, verbs);
    else
        return ctl_fail(&(struct ctrun_error){
            .code = CTRUN_E_USAGE,
            .text = "--print-completion: write bash, zsh or fish behind it"});
    return CT_EXIT_OK;
}
