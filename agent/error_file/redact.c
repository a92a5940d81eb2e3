/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions find the candidates; for a value with a name in front, the name and the
 * look of the value decide. */
#include "agent/error_file/redact.h"

#include <ctype.h>
#include <regex.h>
#include <strings.h>

#include "worker_sdk/base/str.h"

#define MASK "***"

enum {
    GROUPS = 6,
    NAME_MAX_BYTES = 64,
    WINDOW_BYTES = 4096, /* the longest secret that is found */
    /* with its name; limits the work for a text of many words */
    NAMED_WINDOW_BYTES = 1024,
};

/* A name, a separator and a value, where the text has one. */
struct candidate {
    char name[NAME_MAX_BYTES];
    bool is_typed;     /* --name value */
    bool is_label;     /* a colon and a blank are between name and value */
    bool is_path;      /* the name says that the value is a file */
    bool is_quoted;    /* if quoted, without its quotes: */
    const char *value; /* not NUL-terminated */
    size_t length;
    const char *after; /* the text behind the value, closing quote included */
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

/* None, ${TOKEN}, <redacted>, ***: no real secret. */
static bool is_placeholder(const struct candidate *found)
{
    static const char *const words[] = {"none", "null", "true", "false", "unset"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == found->length &&
            strncasecmp(words[i], found->value, found->length) == 0)
            return true;
    return strchr("$<%{", *found->value) || is_all_of(found, "*xX.-");
}

/* password=args.password, token = read_token(): source text in a traceback, with names but no
 * secret. */
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

/* 0123456789abcdef0123: not a word of a sentence. */
static bool looks_random(const struct candidate *found)
{
    for (size_t i = 0; i < found->length; i++)
        if (!isalnum((unsigned char)found->value[i]))
            return false;
    return found->length >= 20 && has(found, isdigit);
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

/* Names whose value is no secret: KeyError: 'x', password_file=/etc/x. */
static bool is_other(const char *name)
{
    static const char *const ends[] = {"error", "exception", "warning", "file",
                                       "path",  "dir",       "name"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(name, ends[i]))
            return true;
    return false;
}

/* Environment variables: HF_TOKEN, API_KEY_2, DB_PASS, but not PWD. */
static bool is_variable(const char *name)
{
    const char *rest = name;
    size_t length;

    for (const char *p = name; *p; p++)
        if (!isupper((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '_')
            return false;
    for (const char *word; (word = ct_next_field(&rest, '_', &length));)
        if ((word > name &&
             (ct_starts_with(word, "PASS") || ct_starts_with(word, "PWD"))) ||
            (length >= 3 && memcmp(word + length - 3, "KEY", 3) == 0) ||
            (length >= 5 && memcmp(word + length - 5, "TOKEN", 5) == 0))
            return true;
    return false;
}

/* Names of secrets: api_key, accessToken, --hub-token; not eos_token, cache_key, max_tokens. */
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

    if (found->length < 3 || found->is_path || is_other(name) ||
        is_placeholder(found) || is_prose(found) ||
        (found->is_typed && *found->value == '-'))
        return false;
    if (strcasecmp(name, "sig") == 0 || ends_with(name, "signature"))
        return found->length >= 16 && has(found, isdigit) && !is_number(found);
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

#define VALUE "(\"([^\"\\\n]|\\\\.)*\"|'([^'\\\n]|\\\\.)*'|[^][(){}\"',;&[:space:]]+)"
#define NAMES "password|passwd|passphrase|secret|credential|token|key"
#define NAME  "^(" NAMES ")[a-z0-9_-]{0,24}"

/* An expression is compiled and tried only where the text has one of the words that it begins
 * with, in any case: compiling all of them takes longer than all other work of the agent on a
 * failure. */
static const struct shape {
    const char *begins;
    const char *expression;
    /* number of the group that is the secret; 0: the text before the match */
    int group;
    enum {
        ANY_CASE = 1,
        NAMED = 2, /* name and value are checked before it counts */
        WORD = 4,  /* it must not begin within a word */
    } how;
} shapes[] = {
    {"-----BEGIN", "^-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----(([^-]|-[^-]){3,})", 2,
     0},
    {"-----END", "^-----END [A-Z ]*PRIVATE KEY", 0,
     0}, /* the key began before the last lines */
    {"://", "^://[^/@:[:space:]]*:([^/[:space:]\"']{3,})@", 1, 0},
    {"://", "^://([A-Za-z0-9_-]{20,})@", 1, 0},
    {"hooks.slack.com", "^hooks\\.slack\\.com/[a-z]+/([A-Za-z0-9/]{20,})", 1, 0},
    {"sig=|signature=", "^(sig|signature)(=)" VALUE, 3, ANY_CASE | NAMED},
    {"_PASS|_PWD", "^(_PASS|_PWD)(=)" VALUE, 3, NAMED},
    {"cookie", "^cookie[\"']?:[[:blank:]]*[\"']?([a-z0-9_.-]+=[^\"'\n]{4,})", 1,
     ANY_CASE},
    {"wandb", "^wandb[[:blank:]]+login[[:blank:]]+([a-f0-9]{40})", 1, 0},
    {" -u| --user", "^ (-u|--user)[ =]*[\"']?[^:\"'[:space:]]+:([^\"'[:space:]]{3,})",
     2, 0},
    {"bearer", "^bearer[[:blank:]]+([a-z0-9._~+/=-]{8,})", 1, ANY_CASE},
    {"authorization",
     "^authorization[\"']?[[:blank:]]*[:=][[:blank:]]*[\"']?(basic|token|apikey|digest|"
     "negotiate)[[:blank:]]+([a-z0-9+/=._-]{8,})",
     2, ANY_CASE},
    {"AKIA|ASIA", "^((AKIA|ASIA)[A-Z0-9]{16})", 1, WORD},
    {"AIza", "^(AIza[A-Za-z0-9_-]{35})", 1, WORD},
    {"hf_|api_org_", "^((hf|api_org)_[A-Za-z0-9]{20,})", 1, WORD},
    {"ghp_|gho_|ghu_|ghs_|ghr_", "^(gh[pousr]_[A-Za-z0-9]{20,})", 1, WORD},
    {"ya29.|GOCSPX-|github_pat_|glpat-|glsa_|sk-|pypi-|nvapi-",
     "^((ya29\\.|GOCSPX-|github_pat_|glpat-|glsa_|sk-|pypi-|nvapi-)"
     "[A-Za-z0-9_-]{16,})",
     1, WORD},
    {"sk_live_|sk_test_|rk_live_|rk_test_", "^([rs]k_(live|test)_[A-Za-z0-9]{16,})", 1,
     WORD},
    {"xox", "^(xox[abeprs]-[A-Za-z0-9-]{10,})", 1, WORD},
    {"npm_", "^(npm_[A-Za-z0-9]{36})", 1, WORD},
    {"dapi", "^(dapi[a-f0-9]{32})", 1, WORD},
    {"eyJ", "^(eyJ[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]{8,}\\.[A-Za-z0-9_-]*)", 1, WORD},
    {NAMES, NAME "[\"']?([[:blank:]]*[:=][[:blank:]]*)" VALUE, 3, ANY_CASE | NAMED},
    {NAMES, NAME "([[:blank:]]+)" VALUE, 3, ANY_CASE | NAMED},
};

/* The text that is searched: `from` is the first byte that is not searched yet. */
struct place {
    const struct shape *shape;
    const regex_t *expression;
    const char *from;
    char *at;
};

static bool is_name_letter(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

/* /etc/passwd, ./a/token, ~/.ssh/id.key; not user/password. */
static bool is_path(const char *from, const char *name)
{
    const char *begin = name;

    while (begin > from && !isspace((unsigned char)begin[-1]) &&
           !strchr("\"'`=:,;([{<", begin[-1]))
        begin--;
    return begin < name &&
           (*begin == '/' || ct_starts_with(begin, "./") ||
            ct_starts_with(begin, "../") || ct_starts_with(begin, "~/"));
}

/* The expression may match from the middle of a name: "key" of WANDB_API_KEY. */
static void take_candidate(struct candidate *out, const struct place *place,
                           const regmatch_t *groups)
{
    const char *separator = place->at + groups[2].rm_so;
    const char *begin = place->at;
    const char *end = separator;

    while (begin > place->from && end - begin < NAME_MAX_BYTES - 1 &&
           is_name_letter(begin[-1]))
        begin--;
    while (end > begin && !is_name_letter(end[-1]))
        end--;
    (void)ct_format(out->name, sizeof out->name, "%.*s", (int)(end - begin),
                    begin); /* cut is fine */
    out->value = place->at + groups[3].rm_so;
    out->length = (size_t)(groups[3].rm_eo - groups[3].rm_so);
    out->after = out->value + out->length;
    out->is_label = *separator == ':' && out->value > separator + 1;
    out->is_typed = !memchr(separator, ':', (size_t)(out->value - separator)) &&
                    !memchr(separator, '=', (size_t)(out->value - separator));
    out->is_path = !memchr(separator, '=', (size_t)(out->value - separator)) &&
                   is_path(place->from, begin);
    out->is_quoted = *out->value == '"' || *out->value == '\'';
    if (out->is_quoted) {
        out->value++;
        out->length -= 2;
    }
}

/* Finds the last lines of a private key. */
static const char *find_rows(const struct place *place, size_t *length)
{
    const char *begin = place->at;

    while (begin > place->from &&
           (isalnum((unsigned char)begin[-1]) || strchr("+/=\r\n\\", begin[-1])))
        begin--;
    while (isspace((unsigned char)*begin))
        begin++;
    *length = (size_t)(place->at - begin);
    return *length < 16 ? NULL : begin;
}

/* NULL: there is none. A secret that is longer than the window is masked only in the window. */
static const char *find_secret(const struct place *place, size_t *length)
{
    const struct shape *shape = place->shape;
    regmatch_t groups[GROUPS];
    struct candidate found;
    char *end = place->at + strnlen(place->at, shape->how & NAMED ? NAMED_WINDOW_BYTES
                                                                  : WINDOW_BYTES);
    const char kept = *end;
    int rc;

    *end = '\0';
    rc = regexec(place->expression, place->at, GROUPS, groups, 0);
    *end = kept;
    if (rc != 0)
        return NULL;
    if (shape->group == 0)
        return find_rows(place, length);
    *length = (size_t)(groups[shape->group].rm_eo - groups[shape->group].rm_so);
    if (!(shape->how & NAMED)) {
        const char *secret = place->at + groups[shape->group].rm_so;

        return ct_starts_with(secret, MASK) ? NULL : secret;
    }
    take_candidate(&found, place, groups);
    if (!is_secret(&found) ||
        (found.is_typed && !ct_starts_with(found.name, "--") && !looks_random(&found)))
        return NULL;
    *length = found.length;
    return found.value;
}

static bool begins(const struct shape *shape, const char *text, const char *at)
{
    const char *rest = shape->begins;
    size_t length;

    if ((shape->how & WORD) && at > text &&
        (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
        return false;
    for (const char *word; (word = ct_next_field(&rest, '|', &length));)
        if (strncasecmp(at, word, length) == 0)
            return true;
    return false;
}

static char *find_begin(const struct shape *shape, const char *from, char *at)
{
    while (*at && !begins(shape, from, at))
        at++;
    return at;
}

/* Kept text is moved to `out`, which is never ahead of the read position. */
static size_t redact_shape(const struct shape *shape, char *text)
{
    const int flags = REG_EXTENDED | (shape->how & ANY_CASE ? REG_ICASE : 0);
    regex_t expression;
    struct place place = {shape, &expression, text, find_begin(shape, text, text)};
    size_t count = 0, length;
    char *out = text;

    if (!*place.at || regcomp(&expression, shape->expression, flags) != 0)
        return 0;
    for (; *place.at; place.at = find_begin(shape, place.from, place.at)) {
        const char *secret = find_secret(&place, &length);

        if (!secret) {
            place.at++;
            continue;
        }
        memmove(out, place.from, (size_t)(secret - place.from));
        out += secret - place.from;
        memcpy(out, MASK, strlen(MASK));
        out += strlen(MASK);
        place.from = secret + length;
        if (place.at < place.from)
            place.at += place.from - place.at;
        count++;
    }
    memmove(out, place.from, strlen(place.from) + 1);
    regfree(&expression);
    return count;
}

size_t redact(char *text)
{
    size_t count = 0;

    for (size_t i = 0; text && i < sizeof shapes / sizeof *shapes; i++)
        count += redact_shape(&shapes[i], text);
    return count;
}
