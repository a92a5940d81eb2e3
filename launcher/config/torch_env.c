/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/torch_env.h"

#include <glob.h>
#include <strings.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    VERSION_MAX_BYTES = 4096, /* the file has some 300 */
    VENV_MAX_BYTES = 4096,    /* of pyvenv.cfg, which has some 300 */
    GLOO_SCALE_TRIED = 215,   /* later ones are taken to be no worse */
    ASYNC_RENAMED = 202,      /* NCCL_ASYNC_ERROR_HANDLING -> TORCH_NCCL_ASYNC_... */
    RECORDER_IS_ON = 215,     /* it is off in 2.7, on in this one */
    KEPT_CALLS = 2000,        /* as in 2.15 */
};

static const char *const names[] = {"GLOO_ENABLE_STORE_V2_API",
                                    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER",
                                    "TORCH_GLOO_LAZY_INIT"};

/* __version__ = '2.15.0+cpu'; 0: not known. */
static int read_version(const char *path)
{
    static const char key[] = "__version__ = '";
    char text[VERSION_MAX_BYTES] = "";
    const char *version;
    int major, minor;

    return ct_small_file_read(text, sizeof text, path) >= 0 &&
                   (version = strstr(text, key)) &&
                   sscanf(version + sizeof key - 1, "%3d.%2d", &major, &minor) == 2
               ? 100 * major + minor
               : 0;
}

/* `length` bytes of `interpreter`, PREFIX/bin/NAME, are PREFIX/. 0: it has no prefix. */
static int find_prefix(const char *interpreter)
{
    const char *end = strrchr(interpreter, '/');

    while (end && end > interpreter && end[-1] != '/')
        end--;
    return end ? (int)(end - interpreter) : 0;
}

/* -1: no torch is there. */
static int look(const char *interpreter)
{
    /* Debian's Python has what pip installed below /usr/local. */
    static const char *const folders[] = {"lib/python3*/site", "lib/python3*/dist",
                                          "local/lib/python3*/dist"};
    const int length = find_prefix(interpreter);
    int oldest = -1;

    for (size_t i = 0; length && oldest < 0 && i < sizeof folders / sizeof *folders;
         i++) {
        char pattern[PATH_MAX];
        glob_t paths;

        if (ct_format(pattern, sizeof pattern, "%.*s%s-packages/torch/version.py",
                      length, interpreter, folders[i]) < 0 ||
            glob(pattern, 0, NULL, &paths) != 0)
            continue;
        for (size_t at = 0; at < paths.gl_pathc; at++) {
            const int version = read_version(paths.gl_pathv[at]);

            oldest = oldest < 0 || version < oldest ? version : oldest;
        }
        globfree(&paths);
    }
    return oldest;
}

/* "home = /usr/bin": the text behind "=". False: it has no such line. */
static bool read_setting(char dst[PATH_MAX], const char *text, const char *key)
{
    const char *line;
    size_t length;

    while (text && (line = ct_next_field(&text, '\n', &length))) {
        const char *equals = memchr(line, '=', length);
        size_t name_length = equals ? (size_t)(equals - line) : 0;
        size_t value_length = equals ? length - name_length - 1 : 0;
        const char *name = ct_trim(line, &name_length);
        const char *value = equals ? ct_trim(equals + 1, &value_length) : "";

        if (name_length == strlen(key) && strncasecmp(name, key, name_length) == 0)
            return value_length > 0 &&
                   ct_format(dst, PATH_MAX, "%.*s", (int)value_length, value) > 0;
    }
    return false;
}

/* The interpreter whose packages a virtual environment shares. False: there is none, because the
 * environment stands alone; `dst` is `path` where it is no virtual environment. */
static bool find_base(char dst[PATH_MAX], const char *path)
{
    char text[VENV_MAX_BYTES] = "", file[PATH_MAX], value[PATH_MAX];

    if (ct_format(file, sizeof file, "%.*spyvenv.cfg", find_prefix(path), path) < 0 ||
        ct_small_file_read(text, sizeof text, file) < 0)
        return ct_copy(dst, PATH_MAX, path) >= 0;
    return read_setting(value, text, "include-system-site-packages") &&
           strcasecmp(value, "true") == 0 && read_setting(value, text, "home") &&
           ct_format(dst, PATH_MAX, "%s/python3", value) > 0;
}

int torch_env_find(const char *interpreter, char *const *env)
{
    char path[PATH_MAX], base[PATH_MAX], real[PATH_MAX];
    int version;

    if (!ct_env_find_program(path, sizeof path, env, interpreter))
        return 0;
    version = look(path); /* of a virtual environment */
    if (version < 0 && find_base(base, path)) {
        version = look(base);
        if (version < 0 && realpath(base, real))
            version = look(real);
    }
    return version > 0 ? version : 0;
}

void torch_env_format(char *dst, size_t size, int torch)
{
    *dst = '\0';
    if (torch > 0)
        (void)ct_format(dst, size, "%d.%d", torch / 100, torch % 100);
}

bool torch_env_knows_gloo_scale(const struct program *program, char *const *env)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ct_env_find(env, names[i]))
            return false;
    return program->torch >= GLOO_SCALE_TRIED;
}

int torch_env_set_gloo_scale(struct ct_env *out)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = ct_env_set(out, names[i], "1");
    return rc;
}

int torch_env_set_older(struct ct_env *out, const struct program *program,
                        char *const *env, bool reads_recorder)
{
    static const char async[] = "NCCL_ASYNC_ERROR_HANDLING";
    static const char recorder[] = "TORCH_NCCL_TRACE_BUFFER_SIZE";
    int rc = 0;

    if (program->torch == 0)
        return 0;
    if (program->torch < ASYNC_RENAMED && !ct_env_find(env, async))
        rc = ct_env_set(out, async, "1");
    if (rc == 0 && reads_recorder && program->torch < RECORDER_IS_ON &&
        !ct_env_find(env, recorder) && !ct_env_find(env, "TORCH_FR_BUFFER_SIZE"))
        rc = ct_env_setf(out, recorder, "%d", KEPT_CALLS);
    return rc;
}
