/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/torch_env.h"

#include <glob.h>
#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    VERSION_MAX_BYTES = 4096, /* the file has some 300 */
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

/* The interpreter is PREFIX/bin/NAME. -1: no torch is there. */
static int look(const char *interpreter)
{
    static const char *const folders[] = {"site", "dist"};
    const char *end = strrchr(interpreter, '/');
    int oldest = -1;

    while (end && end > interpreter && end[-1] != '/')
        end--;
    for (size_t i = 0; end && oldest < 0 && i < sizeof folders / sizeof *folders; i++) {
        char pattern[PATH_MAX];
        glob_t paths;

        if (ct_format(pattern, sizeof pattern,
                      "%.*slib/python3*/%s-packages/torch/version.py",
                      (int)(end - interpreter), interpreter, folders[i]) < 0 ||
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

int torch_env_find(const char *interpreter, char *const *env)
{
    char path[PATH_MAX], real[PATH_MAX];
    int version;

    if (!find_interpreter(path, interpreter, ct_env_find(env, "PATH")))
        return 0;
    version = look(path); /* of a virtual environment */
    if (version < 0 && realpath(path, real))
        version = look(real);
    return version > 0 ? version : 0;
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
