/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/gloo_scale.h"

#include <glob.h>
#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    VERSION_MAX_BYTES = 4096, /* the file has some 300 */
    TRIED_MAJOR = 2,  /* the first PyTorch that it was tried with; later ones are */
    TRIED_MINOR = 15, /* taken to be no worse */
};

static const char *const names[] = {"GLOO_ENABLE_STORE_V2_API",
                                    "GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER",
                                    "TORCH_GLOO_LAZY_INIT"};

/* __version__ = '2.15.0+cpu' */
static bool is_tried(const char *path)
{
    static const char key[] = "__version__ = '";
    char text[VERSION_MAX_BYTES] = "";
    const char *version;
    char *end;
    long major, minor;

    if (ct_small_file_read(text, sizeof text, path) < 0 ||
        !(version = strstr(text, key)))
        return false;
    major = strtol(version + sizeof key - 1, &end, 10);
    if (*end != '.')
        return false;
    minor = strtol(end + 1, NULL, 10);
    return major > TRIED_MAJOR || (major == TRIED_MAJOR && minor >= TRIED_MINOR);
}

/* The interpreter is PREFIX/bin/NAME. 1, 0: the torch there is tried or not; -1: there is none. */
static int look(const char *interpreter)
{
    static const char *const folders[] = {"site", "dist"};
    const char *end = strrchr(interpreter, '/');
    int found = -1;

    while (end && end > interpreter && end[-1] != '/')
        end--;
    for (size_t i = 0; end && found < 0 && i < sizeof folders / sizeof *folders; i++) {
        char pattern[PATH_MAX];
        glob_t paths;

        if (ct_format(pattern, sizeof pattern,
                      "%.*slib/python3*/%s-packages/torch/version.py",
                      (int)(end - interpreter), interpreter, folders[i]) < 0 ||
            glob(pattern, 0, NULL, &paths) != 0)
            continue;
        found = paths.gl_pathc > 0;
        for (size_t at = 0; at < paths.gl_pathc; at++)
            found = found && is_tried(paths.gl_pathv[at]);
        globfree(&paths);
    }
    return found;
}

/* Finds the program in PATH as execvp() does. */
static bool find_interpreter(char dst[PATH_MAX], const char *name, const char *path)
{
    const char *folder;
    size_t length;

    if (strchr(name, '/'))
        return ct_copy(dst, PATH_MAX, name) >= 0;
    while (path && (folder = ct_next_field(&path, ':', &length)))
        if (ct_format(dst, PATH_MAX, "%.*s/%s", (int)length, folder, name) > 0 &&
            access(dst, X_OK) == 0)
            return true;
    return false;
}

bool gloo_scale_is_known(const struct program *program, char *const *env)
{
    char interpreter[PATH_MAX], real[PATH_MAX];
    int found;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ct_env_find(env, names[i]))
            return false;
    if (program->mode == PROGRAM_DIRECT ||
        !find_interpreter(interpreter, program->path, ct_env_find(env, "PATH")))
        return false;
    found = look(interpreter); /* of a virtual environment */
    if (found < 0 && realpath(interpreter, real))
        found = look(real);
    return found > 0;
}

int gloo_scale_set_env(struct ct_env *env)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++)
        rc = ct_env_set(env, names[i], "1");
    return rc;
}
