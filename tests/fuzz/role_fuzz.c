/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any text as --role and --role-restarts. The words of a command are together no longer
 * than the command, and only roles that exist get a number. */
#include <stdlib.h>
#include <string.h>

#include "launcher/options/role_spec.h"
#include "launcher/options/shell_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(const char *command)
{
    const size_t length = strlen(command);
    size_t used = 0;
    char **words;

    if (shell_words_split(&words, command, NULL) < 0)
        return;
    for (size_t i = 0; words[i]; i++)
        used += strlen(words[i]) + 1;
    if (used > length + 1)
        abort();
    shell_words_free(words);
}

static void check_restarts(const char *text)
{
    static const struct ct_role_list roles = {
        .count = 2, .list = {{.name = "a", .slots = 1}, {.name = "data", .slots = 2}}};
    int64_t counts[CT_ROLES_MAX];

    for (int i = 0; i < CT_ROLES_MAX; i++)
        counts[i] = ROLE_SPEC_UNSET;
    (void)role_spec_parse_restarts(counts, &roles, text, NULL);
    for (int i = 0; i < CT_ROLES_MAX; i++)
        if (counts[i] < ROLE_SPEC_UNSET || counts[i] > INT32_MAX ||
            (i >= roles.count && counts[i] != ROLE_SPEC_UNSET))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct ct_role role;
    const char *command;

    if (!text)
        return 0;
    if (role_spec_is(text) && role_spec_parse(&role, &command, text, NULL) == 0) {
        if (!*role.name || role.slots == 0)
            abort();
        check_words(command);
    }
    check_words(text);
    check_restarts(text);
    free(text);
    return 0;
}
