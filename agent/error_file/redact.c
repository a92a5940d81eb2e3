/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions find the candidates; where a name stands in front, what it says and what the value
 * looks like decide. */
#include "agent/error_file/redact.h"

#include <ctype.h>
#include <regex.h>
#include <stdbool.h>
#include <strings.h>

#include "worker_sdk/base/str.h"

#define MASK "***"

enum {
    GROUPS = 5,
    NAME_MAX_BYTES = 64
};

/* A name, a separator and a value, where the text has one. */
struct candidate {
    char name[NAME_MAX_BYTES];
    bool is_typed;     /* --name value */
    bool is_label;     /* a colon and a blank stand between */
    bool is_quoted;    /* then without its quotes: */
    const char *value; /* not terminated */
    size_t length;
    const char *after; /* what follows it, quotes included */
};

/* ---- Values ------------------------------------------------------------------------------ */

static bool has(const struct candidate *found, int (*is)(int letter))
{
    for (size_t i = 0; i < found->length; i++)
        if (is((unsigned char)found->value[i]))
            return true;
    return false;
}

static bool is_all_of(const struct candidate *found, const char *letters)
{
    for (size_t i = 0; i < found->length; i++)
        if (!strchr(letters, found->value[i]))
            return false;
    return true;
}

static bool is_number(const struct candidate *found)
{
    return is_all_of(found, "0123456789.+-eE%") && has(found, isdigit);
}

/* None, ${TOKEN}, <redacted>, ***: nothing that could be misused. */
static bool is_placeholder(const struct candidate *found)
{
    static const char *const words[] = {"none", "null", "true", "false", "unset"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == found->length &&
            strncasecmp(words[i], found->value, found->length) == 0)
            return true;
    return strchr("$<%{", *found->value) || is_all_of(found, "*xX.-");
}

/* password=args.password, token = read_token(): source text in a traceback, which names things. */
static bool is_code(const struct candidate *found)
{
    if (found->is_quoted || has(found, isdigit))
        return false;
    return strchr("([.", *found->after ? *found->after : ' ') ||
           memchr(found->value, '.', found->length) ||
           memchr(found->value, '_', found->length) ||
           (strlen(found->name) >= found->length &&
            strncasecmp(found->name + strlen(found->name) - found->length, found->value,
                        found->length) == 0);
}

/* "password: too short": a sentence. */
static bool is_prose(const struct candidate *found)
{
    return found->is_label && !found->is_quoted && !has(found, isdigit) &&
           !has(found, isupper) && !has(found, ispunct) && found->after[0] == ' ' &&
           isalpha((unsigned char)found->after[1]);
}

/* ---- Names ------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    const size_t of_end = strlen(end);

    return length >= of_end && strcasecmp(text + length - of_end, end) == 0;
}

static bool is_any(const char *name, const char *const *words)
{
    for (; *words; words++)
        if (strcasestr(name, *words))
            return true;
    return false;
}

/* KeyError: 'x', password_file=/etc/x. */
static bool is_other(const char *name)
{
    static const char *const ends[] = {"error", "exception", "warning", "file",
                                       "path",  "dir",       "name"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return false;
}

/* HF_TOKEN, API_KEY_2: a variable of the environment. */
static bool is_variable(const char *name)
{
    const char *rest = name;
    size_t length;

    for (const char *p = name; *p; p++)
        if (!isupper((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '_')
            return false;
    for (const char *word; (word = ct_next_field(&rest, '_', &length));)
        if ((length >= 3 && memcmp(word + length - 3, "KEY", 3) == 0) ||
            (length >= 5 && memcmp(word + length - 5, "TOKEN", 5) == 0))
            return true;
    return false;
}

/* api_key, accessToken, --hub-token: not eos_token, cache_key, max_tokens. */
static bool is_qualified(const char *name)
{
    static const char *const of_keys[] = {
        "api",  "access",  "secret",  "private", "auth",         "account",
        "sign", "encrypt", "service", "storage", "subscription", NULL};
    static const char *const of_tokens[] = {
        "api",   "access",  "auth", "bearer", "refresh", "session", "hub",     "git",
        "wandb", "hugging", "hf",   "slack",  "secur",   "jwt",     "private", NULL};

    return (ends_with(name, "key") && is_any(name, of_keys)) ||
           (ends_with(name, "token") && is_any(name, of_tokens));
}

static bool is_secret(const struct candidate *found)
{
    static const char *const plain[] = {"password", "passwd",     "passphrase",
                                        "secret",   "credential", NULL};
    const char *name = found->name + strspn(found->name, "-");

    if (found->length < 3 || is_other(name) || is_placeholder(found) ||
        is_prose(found) || (found->is_typed && *found->value == '-'))
        return false;
    if (is_variable(name))
        return found->length >= 4 && (!is_number(found) || is_any(name, plain));
    if (is_code(found))
        return false;
    if (is_any(name, plain))
        return found->length >= 4;
    if (is_number(found) || (!found->is_quoted && !has(found, isdigit)) ||
        memchr(found->value, ' ', found->length))
        return false;
    if (is_qualified(name))
        return found->length >= 8;
    return strcasecmp(name, "token") == 0 && found->length >= 12 && has(found, isdigit);
}

/* ---- Finding ----------------------------------------------------------------------------- */

#define VALUE "(\"[^\"\n]*\"|'[^'\n]*'|[^][(){}\"',;&[:space:]]+)"
#define NAMES "password|passwd|passphrase|secret|credential|token|key"
#define NAME  "(" NAMES ")[a-z0-9_-]{0,24}"

/* An expression is compiled only for text that has one of the words it needs, in any case: to compile
 * all of them takes longer than all else that the agent does about a failure. */
static const struct shape {
    const char *needs;
    const char *expression;
    int group;       /* the secret */
    int flags;       /* REG_ICASE */
    bool has_a_name; /* which, with the value, decides */
} shapes[] = {
    {"-----BEGIN", "-----BEGIN [A-Z ]*PRIVATE KEY-----([^-]{3,})", 1, 0, false},
    {"://", "://[^/@:[:space:]]*:([^/@[:space:]]{3,})@", 1, 0, false},
    {"bearer", "bearer[[:blank:]]+([a-z0-9._~+/=-]{8,})", 1, REG_ICASE, false},
    {"authorization",
     "authorization[\"']?[[:blank:]]*[:=][[:blank:]]*[\"']?basic[[:blank:]]+"
     "([a-z0-9+/=]{8,})",
     1, REG_ICASE, false},
    {"AKIA|ASIA|AIza|ya29.|hf_|ghp_|gho_|ghu_|ghs_|ghr_|github_pat_|glpat-|xox|sk-|eyJ",
     "(^|[^A-Za-z0-9_])((AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{35}|"
     "ya29\\.[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|"
     "github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[abeprs]-[A-Za-z0-9-]{"
     "10,}|"
     "sk-[A-Za-z0-9_-]{20,}|eyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]*)",
     2, 0, false},
    {NAMES, NAME "[\"']?([[:blank:]]*[:=][[:blank:]]*)" VALUE, 3, REG_ICASE, true},
    {NAMES, NAME "([[:blank:]]+)" VALUE, 3, REG_ICASE, true},
};

static bool is_name_letter(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

/* The expression begins in the middle of the name: "key" of WANDB_API_KEY. */
static void take_candidate(struct candidate *out, const char *text, const char *at,
                           const regmatch_t *groups)
{
    const char *separator = at + groups[2].rm_so;
    const char *begin = at + groups[0].rm_so;
    const char *end = separator;

    while (begin > text && is_name_letter(begin[-1]))
        begin--;
    while (end > begin && !is_name_letter(end[-1]))
        end--;
    (void)ct_format(out->name, sizeof out->name, "%.*s", (int)(end - begin),
                    begin); /* cut is fine */
    out->value = at + groups[3].rm_so;
    out->length = (size_t)(groups[3].rm_eo - groups[3].rm_so);
    out->after = out->value + out->length;
    out->is_label = *separator == ':' && out->value > separator + 1;
    out->is_typed = !memchr(separator, ':', (size_t)(out->value - separator)) &&
                    !memchr(separator, '=', (size_t)(out->value - separator));
    out->is_quoted = *out->value == '"' || *out->value == '\'';
    if (out->is_quoted) {
        out->value++;
        out->length -= 2;
    }
}

static char *mask(char *secret, size_t length)
{
    const size_t rest = strlen(secret + length) + 1;

    memcpy(secret, MASK, strlen(MASK));
    memmove(secret + strlen(MASK), secret + length, rest);
    return secret + strlen(MASK);
}

/* The secret in this match; NULL: there is none. */
static const char *find_secret(const struct shape *shape, const char *text,
                               const char *at, const regmatch_t *groups, size_t *length)
{
    const regmatch_t *group = &groups[shape->group];
    struct candidate found;

    *length = (size_t)(group->rm_eo - group->rm_so);
    if (!shape->has_a_name)
        return ct_starts_with(at + group->rm_so, MASK) ? NULL : at + group->rm_so;
    take_candidate(&found, text, at, groups);
    if (!is_secret(&found) || (found.is_typed && !ct_starts_with(found.name, "--")))
        return NULL;
    *length = found.length;
    return found.value;
}

static bool may_match(const struct shape *shape, const char *text)
{
    const char *rest = shape->needs;
    char word[16];
    size_t length;

    for (const char *at; (at = ct_next_field(&rest, '|', &length));) {
        (void)ct_format(word, sizeof word, "%.*s", (int)length, at); /* fits */
        if (strcasestr(text, word))
            return true;
    }
    return false;
}

static size_t redact_shape(const struct shape *shape, char *text)
{
    regmatch_t groups[GROUPS];
    regex_t expression;
    size_t count = 0, length;
    char *at = text;

    if (regcomp(&expression, shape->expression, REG_EXTENDED | shape->flags) != 0)
        return 0;
    while (regexec(&expression, at, GROUPS, groups, at > text ? REG_NOTBOL : 0) == 0) {
        const char *secret = find_secret(shape, text, at, groups, &length);

        if (secret) {
            at = mask(at + (secret - at), length);
            count++;
        } else {
            at +=
                groups[shape->group].rm_so; /* the value may have another name in it */
        }
    }
    regfree(&expression);
    return count;
}

size_t redact(char *text)
{
    size_t count = 0;

    for (size_t i = 0; text && i < sizeof shapes / sizeof *shapes; i++)
        if (may_match(&shapes[i], text))
            count += redact_shape(&shapes[i], text);
    return count;
}
