/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a script: launches, also those inside of what shells are given. */
#include "launcher/migrate_launch.h"

#include <errno.h>
#include <string.h>

#include "launcher/option.h"

static const struct shell_range *words_of(const struct shell_script *script,
                                          const struct shell_command *command)
{
    return script->words + command->first;
}

static int read_launch(struct migrate_work *work, const struct shell_range *words,
                       size_t count, const struct migrate_place *place,
                       struct migrate_launch *launch)
{
    const struct shell_range *first = &words[launch->first];
    const char *why = NULL;
    char what[MIGRATE_SHOWN + 1];
    size_t bad = 0;

    if (migrate_options_read(work, words, count, launch, &bad) > 0) {
        migrate_show(what, sizeof what, work, words[bad].start, words[bad].end);
        why = what;
    }
    for (size_t i = 0; i < launch->first; i++)
        if (migrate_begins(work, words[i], "--container-"))
            return migrate_note(work, MIGRATE_LEFT, first->start,
                                "torchrun in a container",
                                "stays: ctrun would have to be in the image");
    if (why)
        return migrate_note(work, MIGRATE_LEFT, first->start, why,
                            "is no option of torchrun that migrate knows: the command "
                            "stays");
    return migrate_rewrite(work, words, place, launch);
}

/* A word that is one quoted text, whose bytes mean themselves: they can be read as a script. */
static bool is_script(const struct migrate_work *work, struct shell_range word)
{
    const char quote = work->text[word.start];
    const struct shell_range inside = {word.start + 1, word.end - 1};

    if (word.end - word.start < 2 || (quote != '"' && quote != '\'') ||
        work->text[word.end - 1] != quote)
        return false;
    if (quote == '\'')
        return !memchr(work->text + inside.start, '\'', inside.end - inside.start);
    for (size_t i = inside.start; i < inside.end; i++) {
        if (strchr("\"`", work->text[i]))
            return false; /* escaped, or not one text */
        if (work->text[i] == '\\' && i + 1 < inside.end && work->text[i + 1] != '\n' &&
            work->text[++i] != '$')
            return false;
    }
    return true;
}

static int read_quoted(struct migrate_work *work, struct shell_range word,
                       struct migrate_place place)
{
    struct shell_script script;
    size_t at;
    int rc;

    if (place.nest >= MIGRATE_NEST_MAX || !migrate_mentions_torchrun(work, word, &at) ||
        !is_script(work, word))
        return 0; /* then it is told as a mention */
    place.nest++;
    rc = shell_script_read(&script, work->text, word.start + 1, word.end - 1, NULL);
    if (rc == 0)
        rc = migrate_launches(work, &script, place);
    shell_script_deinit(&script);
    return rc == -EINVAL ? 0 : rc;
}

/* ssh HOST '...', bash -c '...' and the same behind srun. */
static int read_shells(struct migrate_work *work, const struct shell_range *words,
                       size_t count, struct migrate_place place)
{
    bool is_shell = false;
    bool takes_script = false;
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        if (migrate_is_any(work, words[i], "ssh"))
            takes_script = place.is_remote = true;
        else if (migrate_is_any(work, words[i], "bash sh /bin/bash /bin/sh"))
            is_shell = true;
        else if (is_shell && migrate_is_option(work, words[i]) &&
                 migrate_ends(work, words[i], "c"))
            takes_script = true;
        else if (takes_script)
            rc = read_quoted(work, words[i], place);
    }
    return rc;
}

/* Programs that may look for MASTER_ADDR in what the script exports. */
static void heed_reader(struct migrate_work *work, const struct shell_range *words,
                        size_t count)
{
    const size_t head = migrate_find_head(work, words, count);
    struct shell_range word;

    if (head == count || work->has_reader)
        return;
    word = words[head];
    work->has_reader =
        migrate_is_python(work, word) || migrate_is_dynamic(work, word) ||
        migrate_has(work, word, "/") ||
        migrate_is_any(
            work, word,
            "srun mpirun mpiexec bash sh ssh accelerate deepspeed parallel xargs env "
            "exec eval") ||
        /* What is read before they are set is an environment's activate. */
        (migrate_is_any(work, word, "source .") &&
         migrate_has(work, (struct shell_range){0, word.start}, "MASTER_"));
    work->reader_line = shell_line(work->text, word.start);
}

/* `torchrun() {`: the script has its own. */
static bool is_function(const struct migrate_work *work, struct shell_range word)
{
    size_t at = word.end;

    while (at < work->length && strchr(" \t", work->text[at]))
        at++;
    return at < work->length && work->text[at] == '(';
}

static int read_command(struct migrate_work *work, const struct shell_script *script,
                        const struct shell_command *command, struct migrate_place place)
{
    const struct shell_range *words = words_of(script, command);
    const int launches = work->out->launches;
    struct migrate_launch launch;
    size_t head;
    int rc;

    if (migrate_find_launcher(work, words, command->count, &place, &launch)) {
        if (is_function(work, words[command->count - 1]))
            return migrate_note(work, MIGRATE_LEFT, words[0].start, "torchrun",
                                "is a function of this script, and stays");
        place.is_one_node |= command->is_background && command->loops > 0;
        return read_launch(work, words, command->count, &place, &launch);
    }
    head = migrate_find_head(work, words, command->count);
    if (head < command->count && migrate_is_talker(work, words[head]))
        return text_edits_add(&work->seen, words[0].start,
                              words[command->count - 1].end, "");
    place.is_one_node |= command->is_background && command->loops > 0;
    if ((rc = read_shells(work, words, command->count, place)) == 0 &&
        launches == work->out->launches)
        heed_reader(work, words, command->count);
    return rc;
}

int migrate_launches(struct migrate_work *work, const struct shell_script *script,
                     struct migrate_place place)
{
    int rc = 0;

    for (size_t i = 0; i < script->command_count && rc == 0; i++)
        rc = read_command(work, script, &script->commands[i], place);
    return rc;
}
