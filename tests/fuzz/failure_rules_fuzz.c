/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any text as a file of --failure-rules. Each rule that is parsed has all its parts and
 * is found by its own words. */
#include <stdlib.h>
#include <string.h>

#include "agent/postmortem/failure_hints.h"
#include "launcher/options/failure_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct failure_rules rules;
    struct failure_hint hint;
    struct ctrun_error err;
    char *text = strndup((const char *)data, size);

    if (!text || failure_rules_parse(&rules, text, strlen(text), "f", &err) < 0)
        return 0;
    failure_hints_use(rules.list, rules.count);
    for (int i = 0; i < rules.count; i++)
        if (!rules.list[i].likely ||
            !failure_hints_find_in_line(rules.list[i].words, &hint) || hint.number > i)
            abort();
    failure_hints_use(NULL, 0);
    failure_rules_deinit(&rules);
    return 0;
}
