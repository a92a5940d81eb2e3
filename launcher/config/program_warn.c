/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/program_warn.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "launcher/options/option_name.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

/* ctrun train.py --nproc-per-node=8: one worker. It may be an option of the program as well. */
static void warn_behind(const struct options *options)
{
    for (int i = 1; i < options->program_count; i++) {
        const char *word = options->program[i];
        const size_t length = strcspn(word, "=");
        char name[OPTION_NAME_MAX_BYTES];
        int id;

        if (!ct_starts_with(word, "--") ||
            ct_format(name, sizeof name, "%.*s", (int)length - 2, word + 2) < 0)
            continue;
        id = option_name_find_whole(name, false);
        if ((id == OPTION_NPROC_PER_NODE || id == OPTION_NNODES ||
             id == OPTION_RDZV_ENDPOINT || id == OPTION_STANDALONE) &&
            options->values[id].source == OPTION_FROM_DEFAULT)
            ct_warn("%.*s comes after %s and is passed to it; options of ctrun come "
                    "before the program",
                    (int)length, word, options->program[0]);
    }
}

static bool is_one_of(const char *word, const char *words)
{
    size_t length;

    for (const char *at; (at = ct_next_field(&words, ' ', &length));)
        if (strlen(word) == length && memcmp(at, word, length) == 0)
            return true;
    return false;
}

static bool is_launcher_module(const char *name)
{
    return is_one_of(name, "torch.distributed.run torch.distributed.launch "
                           "accelerate.commands.launch");
}

/* The name of torchrun, accelerate launch, -m torch.distributed.run, python -m torch.distributed.run;
 * NULL: another program. */
static const char *find_launcher(const struct options *options)
{
    char *const *words = options->program;
    const char *name = ct_base_name(words[0]);

    if (options->values[OPTION_MODULE].is_on)
        return is_launcher_module(words[0]) ? words[0] : NULL;
    if (is_one_of(name, "torchrun deepspeed horovodrun mpirun mpiexec"))
        return name;
    if (options->program_count > 1 && strcmp(name, "accelerate") == 0)
        return strcmp(words[1], "launch") == 0 ? "accelerate launch" : NULL;
    return options->program_count > 2 && ct_starts_with(name, "python") &&
                   strcmp(words[1], "-m") == 0 && is_launcher_module(words[2])
               ? words[2]
               : NULL;
}

void program_warn(const struct options *options)
{
    const char *launcher = options->program_count > 0 ? find_launcher(options) : NULL;

    warn_behind(options);
    if (launcher)
        ct_warn(
            "%s would start ranks of its own in each worker; use ctrun instead of it: "
            "ctrun [options] train.py",
            launcher);
}

void program_warn_shell(const struct program *program)
{
    const char *name = program->args[0];
    const char *dot = name ? strrchr(name, '.') : NULL;

    if (program->mode == PROGRAM_PYTHON && dot && strcmp(dot, ".sh") == 0)
        ct_warn("%s is run by Python: for a shell script begin it with #!/bin/sh and "
                "chmod +x it, or write --no-python sh %s",
                name, name);
}

enum {
    SCRIPT_MAX_BYTES = 256 * 1024 /* the rest of a script is not looked at */
};

static const char blanks[] = " \t\r\n";

/* Behind the '#' of a comment; a '#' in a text before it is taken for one. */
static bool is_in_comment(const char *text, const char *at)
{
    while (at > text && at[-1] != '\n')
        if (*--at == '#')
            return true;
    return false;
}

/* "distributed.initialize()", whatever the name of the module before it is. */
static bool has_jax_call(const char *text)
{
    static const char call[] = "distributed.initialize";

    for (const char *at = text; strstr(text, "jax") && (at = strstr(at, call));) {
        const char *begin = at;

        at += sizeof call - 1;
        at += strspn(at, blanks);
        if (*at == '(' && at[1 + strspn(at + 1, blanks)] == ')' &&
            !is_in_comment(text, begin))
            return true;
    }
    return false;
}

bool program_calls_jax(const struct program *program)
{
    struct stat info; /* a pipe is read only once */
    const bool is_script = program->mode == PROGRAM_PYTHON && program->args[0] &&
                           stat(program->args[0], &info) == 0 && S_ISREG(info.st_mode);
    char *text = is_script ? ct_zalloc(SCRIPT_MAX_BYTES) : NULL;
    bool calls = false;

    if (text && ct_small_file_read(text, SCRIPT_MAX_BYTES, program->args[0]) > 0)
        calls = has_jax_call(text);
    free(text);
    return calls;
}
