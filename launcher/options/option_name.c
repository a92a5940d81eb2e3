/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/option_name.h"

#include <ctype.h>

#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/str.h"

void option_name_spell(char *dst, const char *name, bool with_underscores)
{
    (void)ct_copy(dst, OPTION_NAME_MAX_BYTES, name); /* table names are shorter */
    for (; with_underscores && *dst; dst++)
        if (*dst == '-')
            *dst = '_';
}

static bool is_known(int id, bool is_launch)
{
    return is_launch || !option_table[id].is_launch_only;
}

/* True for an option that torchrun does not have. */
static bool is_own(enum option_id id)
{
    return option_table[id].is_own;
}

/* An abbreviation that means one of torchrun's options means it here: --print-c is
 * --print-completion, although ctrun has --print-config. ctrun's own options count only where
 * no option of torchrun begins so. */
static int prefer_torchrun(struct option_match *matches, int count)
{
    int kept = 0;

    for (int i = 0; i < count; i++)
        if (!is_own(matches[i].id))
            matches[kept++] = matches[i];
    return kept ? kept : count;
}

int option_name_find(struct option_match matches[OPTION_MATCHES_MAX],
                     const char *prefix, size_t length, bool is_launch)
{
    char spelling[OPTION_NAME_MAX_BYTES];
    int count = 0;

    for (int id = 0; id < OPTION_COUNT; id++) {
        int spellings = strchr(option_table[id].name, '-') ? 2 : 1;

        for (int i = 0; i < spellings && is_known(id, is_launch); i++) {
            option_name_spell(spelling, option_table[id].name, i == 1);
            if (strncmp(spelling, prefix, length) != 0)
                continue;
            matches[count] = (struct option_match){(enum option_id)id, i == 1};
            if (strlen(spelling) == length) {
                matches[0] = matches[count];
                return 1;
            }
            count++;
        }
    }
    return prefer_torchrun(matches, count);
}

int option_name_find_letter(char letter)
{
    for (int id = 0; id < OPTION_COUNT; id++)
        if (option_table[id].letter && option_table[id].letter == letter)
            return id;
    return -1;
}

int option_name_find_whole(const char *name, bool is_launch)
{
    char dashed[OPTION_NAME_MAX_BYTES];

    if (ct_copy(dashed, sizeof dashed, name) < 0)
        return -1;
    for (char *p = dashed; *p; p++)
        if (*p == '_')
            *p = '-';
    for (int id = 0; id < OPTION_COUNT; id++)
        if (is_known(id, is_launch) && strcmp(option_table[id].name, dashed) == 0)
            return id;
    return -1;
}

const char *option_name_nearest(const char *typed, bool is_launch)
{
    char wanted[OPTION_NAME_MAX_BYTES];
    struct ct_nearest near;

    if (ct_copy(wanted, sizeof wanted, typed) < 0)
        return NULL;
    wanted[strcspn(wanted, "=")] = '\0';
    for (char *p = wanted; *p; p++)
        *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    near = ct_nearest_to(wanted);
    for (int id = 0; id < OPTION_COUNT; id++)
        if (is_known(id, is_launch))
            ct_nearest_offer(&near, option_table[id].name);
    return near.word;
}
